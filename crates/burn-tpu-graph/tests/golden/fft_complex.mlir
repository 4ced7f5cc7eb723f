// %0 = parameter {index = 0} : f32[5]
// %1 = parameter {index = 1} : f32[5]
// %2 = complex %0, %1 : complex<f32>[5]
// %3 = fft %2 {kind = Fft, length = 5} : complex<f32>[5]
// %4 = fft %3 {kind = Ifft, length = 5} : complex<f32>[5]
// %5 = real %3 : f32[5]
// %6 = imag %4 : f32[5]
// outputs %5, %6

module @program {
  func.func @main(%arg0: tensor<5xf32>, %arg1: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
    %2 = "stablehlo.complex"(%arg0, %arg1) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xcomplex<f32>>
    %3 = "stablehlo.fft"(%2) {fft_type = #stablehlo<fft_type FFT>, fft_length = array<i64: 5>} : (tensor<5xcomplex<f32>>) -> tensor<5xcomplex<f32>>
    %4 = "stablehlo.fft"(%3) {fft_type = #stablehlo<fft_type IFFT>, fft_length = array<i64: 5>} : (tensor<5xcomplex<f32>>) -> tensor<5xcomplex<f32>>
    %5 = "stablehlo.real"(%3) : (tensor<5xcomplex<f32>>) -> tensor<5xf32>
    %6 = "stablehlo.imag"(%4) : (tensor<5xcomplex<f32>>) -> tensor<5xf32>
    "func.return"(%5, %6) : (tensor<5xf32>, tensor<5xf32>) -> ()
  }
}
