"""All supported layouts of weights. To add one, add a table here and a test."""

from vitrail.weights.layout import Layout
from vitrail.weights.layouts import marian, vision_encoder_decoder, vitpose
from vitrail.weights.layouts.hugging_face import beit as hugging_face_beit
from vitrail.weights.layouts.hugging_face import dino as hugging_face_dino
from vitrail.weights.layouts.hugging_face import towers as hugging_face_towers
from vitrail.weights.layouts.hugging_face import vit as hugging_face
from vitrail.weights.layouts.relatives import (
    cvt,
    dit,
    dit_diffusers,
    mdt,
    mixer,
    pvt,
    pvt_v2,
    resnet_google,
    resnet_hugging_face,
    resnet_timm,
    swin,
    t2t,
    tnt,
)
from vitrail.weights.layouts.segmenters import segformer, upernet, vit_adapter
from vitrail.weights.layouts.timm import timm
from vitrail.weights.layouts.vit import clip, dino, google, torchvision, vit_pytorch

LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        dino.DINO, timm.TIMM, timm.TIMM_CLIP, timm.EVA, timm.DINOV3, timm.ROPE, timm.BEIT, hugging_face.VIT, hugging_face.DEIT,
        hugging_face.MSN, hugging_face.IJEPA, hugging_face_beit.BEIT, hugging_face_beit.DATA2VEC, hugging_face_dino.DINOV2,
        hugging_face_dino.DINOV2_SWIGLU, hugging_face_dino.DINOV2_REGISTERS, hugging_face_dino.DINOV2_REGISTERS_SWIGLU,
        hugging_face_dino.DINOV3, hugging_face_dino.DINOV3_GATED, hugging_face_towers.SIGLIP, hugging_face_towers.SIGLIP2,
        hugging_face_towers.CLIP, hugging_face_towers.AIMV2, hugging_face.MAE, google.GOOGLE, torchvision.TORCHVISION,
        *dino.DINOV2_ORIGINALS, timm.MAE_ORIGINAL, clip.OPEN_CLIP, clip.CLIP_ORIGINAL, vit_pytorch.VIT_PYTORCH,
        vit_pytorch.SIMPLE_VIT, vit_pytorch.SIMPLE_VIT_EARLY, vit_pytorch.VIT_PYTORCH_1_0, vit_pytorch.VIT_PYTORCH_0_16,
        vit_pytorch.VIT_PYTORCH_EARLY, vit_pytorch.VIT_PYTORCH_0_5, pvt.ORIGINAL, pvt.TRANSFORMERS, pvt_v2.ORIGINAL, pvt_v2.TIMM,
        pvt_v2.TRANSFORMERS, cvt.HUGGING_FACE, cvt.ORIGINAL, tnt.TIMM, tnt.ORIGINAL, t2t.T2T, mixer.TIMM, mixer.GOOGLE,
        resnet_timm.RESNET_BASIC, resnet_timm.RESNET, resnet_timm.BIT, resnet_timm.TORCHVISION_BASIC, resnet_timm.TORCHVISION,
        resnet_hugging_face.RESNET_BASIC, resnet_hugging_face.RESNET, resnet_hugging_face.BIT, resnet_google.BIT, swin.TIMM,
        swin.ORIGINAL, swin.TRANSFORMERS, vitpose.TRANSFORMERS, vitpose.ORIGINAL, vitpose.MMPOSE,
        dit.ORIGINAL, dit_diffusers.DIFFUSERS, mdt.MDT, mdt.MDT_V2, upernet.UPERNET_SWIN, upernet.UPERNET_PVT_V2,
        upernet.UPERNET_RESNET, upernet.UPERNET_RESNET_BASIC, segformer.SEGFORMER, vit_adapter.DEIT, vit_adapter.AUGREG,
    )
}  # fmt: skip
"""Layouts of image models by name. If several fit a checkpoint equally well, the first is taken."""
TEXT_LAYOUTS: dict[str, Layout] = {marian.MARIAN.name: marian.MARIAN}
"""Layouts of translation models."""
CAPTIONER_LAYOUTS: dict[str, Layout] = {
    vision_encoder_decoder.VISION_ENCODER_DECODER.name: vision_encoder_decoder.VISION_ENCODER_DECODER
}
"""Layouts of captioning models."""
