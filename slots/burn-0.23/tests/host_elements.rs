//! The methods of Burn 0.23's linear algebra and vision that ask burn-flex's tensors for their elements.

use burn::linalg;
use burn::prelude::*;
use burn::vision::MedianFilter;
use burn_tpu::TpuDevice;

#[test]
fn a_matrix_has_a_root() {
    let matrix = Tensor::<2>::from_data([[4.0, 2.0], [2.0, 5.0]], &Device::from(TpuDevice::ndarray()));
    let root = linalg::cholesky(matrix);
    assert_eq!(root.into_data().iter::<f32>().collect::<Vec<_>>(), [2.0, 0.0, 1.0, 2.0]);
}
