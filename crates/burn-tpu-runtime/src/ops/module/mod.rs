//! Layers: convolutions, pools, interpolation, attention, linear layers, norms, Fourier transforms, the CTC loss.
//!
//! One file per family, for any number of spatial dims. Layouts are `[batch, channels, spatial...]`. Options are plain
//! structs next to the functions that take them.

mod adaptive_pool;
mod attention;
mod attention_backward;
mod avg_pool;
mod batch_norm;
mod conv;
mod coordinates;
mod ctc_loss;
mod deform_conv;
mod fft;
mod fold;
mod interpolate;
mod linear;
mod max_pool;
mod norm;
mod operands;
mod resample;
mod sample;
mod unfold;
mod window;

pub use adaptive_pool::{adaptive_avg_pool, adaptive_avg_pool_backward};
pub use attention::{AttentionOptions, CausalAlignment, attention, attention_with_logsumexp};
pub use attention_backward::{AttentionGradient, attention_backward};
pub use avg_pool::{avg_pool, avg_pool_backward};
pub use batch_norm::{batch_norm, batch_norm_train, batch_norm_train_backward};
pub use conv::{
    ConvOptions, bias_backward, conv, conv_transpose, conv_transpose_weight_backward, conv_transpose_x_backward,
    conv_weight_backward, conv_x_backward,
};
pub use coordinates::{Coordinates, NearestRounding};
pub use ctc_loss::{ctc_loss, ctc_loss_backward};
pub use deform_conv::{DeformConvOptions, Gradients, Operands, deform_conv2d, deform_conv2d_backward};
pub use fft::{irfft, rfft};
pub use fold::fold4d;
pub use interpolate::{Cubic, InterpolateMode, InterpolateOptions, interpolate, interpolate_backward};
pub use linear::{linear, linear_bias_backward, linear_weight_backward, linear_x_backward};
pub use max_pool::{max_pool, max_pool_backward, max_pool_with_indices};
pub use norm::layer_norm;
pub use unfold::unfold4d;
pub use window::{Rounding, Window};
