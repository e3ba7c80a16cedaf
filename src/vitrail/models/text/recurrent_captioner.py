"""Captioners with an LSTM as decoder after a ViT (Xu et al. 2015, https://arxiv.org/abs/1502.03044)."""

from torch import Tensor, nn

from vitrail.models.configs.captioner import RecurrentCaptionerConfig
from vitrail.models.text.captioner import Encoder, WritesOfImages
from vitrail.models.text.recurrent_decoder import Reading, RecurrentDecoder


class RecurrentCaptioner(WritesOfImages, RecurrentDecoder):
    """A captioner: images (B, C, H, W) and captions (B, T), or K per image (B, K, T), to logits of the next token.

    The first state s₀ is computed from the mean of the image's tokens h. After each word, the state s attends to them:
    ``e = f_att(s, h)``, ``a = softmax(e)``, ``c = Σ a h``. The next word is predicted from s and c.
    """

    config: RecurrentCaptionerConfig

    def __init__(self, config: RecurrentCaptionerConfig):
        super().__init__()
        self.config = c = config
        self.encoder = Encoder(c.encoder, c.patches_behind)
        self.narrow = nn.Linear(c.encoder.dim, c.hidden_dim)
        self.starts = nn.ModuleList(nn.Linear(c.hidden_dim, 2 * c.hidden_dim) for _ in c.inputs)
        self.add_embedding()
        self.add_decoder()
        self.initialize(self.encoder)

    def read(self, tokens: Tensor) -> Reading:
        memory = self.narrow(tokens)  # (B, N, H)
        mean = memory.mean(dim=1)
        return self.reading(memory, [start(mean) for start in self.starts])
