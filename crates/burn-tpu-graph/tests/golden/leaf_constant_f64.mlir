// %0 = constant {value = 0x01264b7095badf092e53789dc2e711365b80a5caef193e6388add2f721466b90b5da04294e7398bde20c31567ba0c5ea} : f64[3,2]
// %1 = constant {value = 0x} : f64[0,2]
// %2 = constant {value = -1.5} : f64[2,2]
// %3 = constant {value = 1.0} : f64[0]
// %4 = constant {value = nan:0x7ff8000000000000} : f64[]
// %5 = constant {value = -inf} : f64[]
// %6 = constant {value = -0.0} : f64[]
// %7 = constant {value = 0.1} : f64[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7

module @program {
  func.func @main() -> (tensor<3x2xf64>, tensor<0x2xf64>, tensor<2x2xf64>, tensor<0xf64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) {
    %0 = "stablehlo.constant"() {value = dense<"0x01264B7095BADF092E53789DC2E711365B80A5CAEF193E6388ADD2F721466B90B5DA04294E7398BDE20C31567BA0C5EA"> : tensor<3x2xf64>} : () -> tensor<3x2xf64>
    %1 = "stablehlo.constant"() {value = dense<> : tensor<0x2xf64>} : () -> tensor<0x2xf64>
    %2 = "stablehlo.constant"() {value = dense<0xBFF8000000000000> : tensor<2x2xf64>} : () -> tensor<2x2xf64>
    %3 = "stablehlo.constant"() {value = dense<> : tensor<0xf64>} : () -> tensor<0xf64>
    %4 = "stablehlo.constant"() {value = dense<0x7FF8000000000000> : tensor<f64>} : () -> tensor<f64>
    %5 = "stablehlo.constant"() {value = dense<0xFFF0000000000000> : tensor<f64>} : () -> tensor<f64>
    %6 = "stablehlo.constant"() {value = dense<0x8000000000000000> : tensor<f64>} : () -> tensor<f64>
    %7 = "stablehlo.constant"() {value = dense<0x3FB999999999999A> : tensor<f64>} : () -> tensor<f64>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7) : (tensor<3x2xf64>, tensor<0x2xf64>, tensor<2x2xf64>, tensor<0xf64>, tensor<f64>, tensor<f64>, tensor<f64>, tensor<f64>) -> ()
  }
}
