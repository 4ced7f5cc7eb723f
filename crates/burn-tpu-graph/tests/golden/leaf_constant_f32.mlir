// %0 = constant {value = 0x01264b7095badf092e53789dc2e711365b80a5caef193e63} : f32[3,2]
// %1 = constant {value = 0x} : f32[0,2]
// %2 = constant {value = -1.5} : f32[2,2]
// %3 = constant {value = 1.0} : f32[0]
// %4 = constant {value = nan:0x7fc00000} : f32[]
// %5 = constant {value = -inf} : f32[]
// %6 = constant {value = -0.0} : f32[]
// %7 = constant {value = 0.1} : f32[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7

module @program {
  func.func @main() -> (tensor<3x2xf32>, tensor<0x2xf32>, tensor<2x2xf32>, tensor<0xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) {
    %0 = "stablehlo.constant"() {value = dense<"0x01264B7095BADF092E53789DC2E711365B80A5CAEF193E63"> : tensor<3x2xf32>} : () -> tensor<3x2xf32>
    %1 = "stablehlo.constant"() {value = dense<> : tensor<0x2xf32>} : () -> tensor<0x2xf32>
    %2 = "stablehlo.constant"() {value = dense<0xBFC00000> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %3 = "stablehlo.constant"() {value = dense<> : tensor<0xf32>} : () -> tensor<0xf32>
    %4 = "stablehlo.constant"() {value = dense<0x7FC00000> : tensor<f32>} : () -> tensor<f32>
    %5 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %6 = "stablehlo.constant"() {value = dense<0x80000000> : tensor<f32>} : () -> tensor<f32>
    %7 = "stablehlo.constant"() {value = dense<0x3DCCCCCD> : tensor<f32>} : () -> tensor<f32>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7) : (tensor<3x2xf32>, tensor<0x2xf32>, tensor<2x2xf32>, tensor<0xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> ()
  }
}
