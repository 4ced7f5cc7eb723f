// %0 = parameter {index = 0} : f32[2,6]
// %1 = fft %0 {kind = Rfft, length = 6} : complex<f32>[2,4]
// %2 = real %1 : f32[2,4]
// %3 = imag %1 : f32[2,4]
// %4 = complex %2, %3 : complex<f32>[2,4]
// %5 = fft %4 {kind = Irfft, length = 6} : f32[2,6]
// outputs %2, %3, %5

module @program {
  func.func @main(%arg0: tensor<2x6xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x6xf32>) {
    %1 = "stablehlo.fft"(%arg0) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 6>} : (tensor<2x6xf32>) -> tensor<2x4xcomplex<f32>>
    %2 = "stablehlo.real"(%1) : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
    %3 = "stablehlo.imag"(%1) : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
    %4 = "stablehlo.complex"(%2, %3) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xcomplex<f32>>
    %5 = "stablehlo.fft"(%4) {fft_type = #stablehlo<fft_type IRFFT>, fft_length = array<i64: 6>} : (tensor<2x4xcomplex<f32>>) -> tensor<2x6xf32>
    "func.return"(%2, %3, %5) : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x6xf32>) -> ()
  }
}
