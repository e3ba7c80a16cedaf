"""Tensors in, tensors out: the parts that every model is assembled from."""

from vitrail.parts.attention.attention import Attention
from vitrail.parts.attention.cache import DecoderCache, KeyValueCache
from vitrail.parts.attention.cvt_attention import ConvolvedAttention, DepthwiseConv, SequenceStage
from vitrail.parts.attention.deformable import DeformableAttention, cell_places, sample_levels
from vitrail.parts.attention.dot_product import attend, attention_weights, causal_mask
from vitrail.parts.attention.performer import KernelAttention
from vitrail.parts.attention.reduced_attention import PooledReduction, ReducedAttention
from vitrail.parts.attention.windows import WindowAttention
from vitrail.parts.block import Block, Branch, DropPath, LayerScale, ModulatedHead, ParallelBlock, drop_path_rate, patches_in
from vitrail.parts.conditioning import TimeEmbedding, time_frequencies
from vitrail.parts.cpu.dropout import Dropout
from vitrail.parts.cpu.fast_block import FastBlock, Matrix, Product, product_of
from vitrail.parts.cpu.precision import as_autocast
from vitrail.parts.feed_forward import ConvFeedForward, ExpertFeedForward, FeedForward
from vitrail.parts.head import last_layer, lecture_head, linear_head, mlp_head, projection_head
from vitrail.parts.normalization import norm_layer
from vitrail.parts.pooling import AttentionPooling, ClassAndMeanPooling, ClassTokenPooling, MeanPooling
from vitrail.parts.positions.interpolation import Grid, Interpolation, resize_factorised, resize_positions, resize_relative
from vitrail.parts.positions.schemes import (
    KeptPosition,
    LearnedPosition1d,
    LearnedPosition2d,
    RelativePositionBias,
    RotaryPosition2d,
    rotate,
    sincos_position_1d,
    sincos_position_2d,
)
from vitrail.parts.positions.text import LearnedSequencePosition, SequencePosition
from vitrail.parts.text.lstm import BidirectionalLSTM, LSTMLayer, LSTMState, lstm_step
from vitrail.parts.text.rnn_attention import AdditiveAlignment, DotAlignment
from vitrail.parts.text.token_loss import token_loss
from vitrail.parts.vision.conv_norm import MapNorm, conv_norm, map_norm, resize_map
from vitrail.parts.vision.heatmap_decoder import ClassicHeatmapDecoder, SimpleHeatmapDecoder
from vitrail.parts.vision.map_heads import LinearDecoder, MLPDecoder, UPerNetDecoder
from vitrail.parts.vision.map_pyramid import STRIDES, SimplePyramid, StageMaps, map_sizes
from vitrail.parts.vision.patches import (
    ConvStem,
    PatchEmbedding,
    PooledStem,
    adapt_channels,
    grid_size,
    patchify,
    resize_patches,
    unpatchify,
)
from vitrail.parts.vision.resnet import (
    BasicBlock,
    Bottleneck,
    HybridEmbedding,
    PreActivationBottleneck,
    ResNetFeatures,
    ResNetPyramid,
    resnet_stride,
)
from vitrail.parts.vision.spatial_prior import SpatialPrior
from vitrail.parts.vision.stage import GridEmbedding, PatchMerging, PositionedEmbedding, Stage
from vitrail.parts.vision.standardized import StandardizedConv2d
from vitrail.parts.vision.tnt_embedding import NestedBlock, WordEmbedding, WordsToPatches
from vitrail.parts.vision.tokens_to_token import SoftSplit, TokenLayer, TokensToToken
from vitrail.parts.vision.whitening import Whitening
