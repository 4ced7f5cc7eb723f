//! The methods of Burn 0.23's linear algebra and vision that ask burn-flex's tensors for their elements.

use burn::linalg;
use burn::prelude::*;
use burn::vision::median;
use burn_tpu::TpuDevice;

fn host() -> Device {
    Device::from(TpuDevice::ndarray())
}

#[test]
fn a_matrix_has_a_root() {
    let matrix = Tensor::<2>::from_data([[4.0, 2.0], [2.0, 5.0]], &host());
    let root = linalg::cholesky(matrix, false);
    assert_eq!(root.device(), host());
    assert_eq!(root.into_data().iter::<f32>().collect::<Vec<_>>(), [2.0, 0.0, 1.0, 2.0]);
}

#[test]
fn an_image_is_filtered_on_its_device() {
    let image = Tensor::<4>::from_data([[[[1.0, 9.0, 2.0], [3.0, 4.0, 5.0], [6.0, 0.0, 7.0]]]], &host());
    let filtered = median(image, 3);
    assert_eq!(filtered.device(), host());
    // Borders repeat the nearest pixel.
    let expected = [3.0, 3.0, 4.0, 3.0, 4.0, 5.0, 4.0, 5.0, 5.0];
    assert_eq!(filtered.into_data().iter::<f32>().collect::<Vec<_>>(), expected);
}
