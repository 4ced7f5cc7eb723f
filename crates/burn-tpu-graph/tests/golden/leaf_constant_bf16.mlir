// %0 = constant {value = 0x01264b7095badf092e53789d} : bf16[3,2]
// %1 = constant {value = 0x} : bf16[0,2]
// %2 = constant {value = -1.5} : bf16[2,2]
// %3 = constant {value = 1.0} : bf16[0]
// %4 = constant {value = nan:0x7fc0} : bf16[]
// %5 = constant {value = -inf} : bf16[]
// %6 = constant {value = -0.0} : bf16[]
// %7 = constant {value = 0.10009765625} : bf16[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7

module @program {
  func.func @main() -> (tensor<3x2xbf16>, tensor<0x2xbf16>, tensor<2x2xbf16>, tensor<0xbf16>, tensor<bf16>, tensor<bf16>, tensor<bf16>, tensor<bf16>) {
    %0 = "stablehlo.constant"() {value = dense<"0x01264B7095BADF092E53789D"> : tensor<3x2xbf16>} : () -> tensor<3x2xbf16>
    %1 = "stablehlo.constant"() {value = dense<> : tensor<0x2xbf16>} : () -> tensor<0x2xbf16>
    %2 = "stablehlo.constant"() {value = dense<0xBFC0> : tensor<2x2xbf16>} : () -> tensor<2x2xbf16>
    %3 = "stablehlo.constant"() {value = dense<> : tensor<0xbf16>} : () -> tensor<0xbf16>
    %4 = "stablehlo.constant"() {value = dense<0x7FC0> : tensor<bf16>} : () -> tensor<bf16>
    %5 = "stablehlo.constant"() {value = dense<0xFF80> : tensor<bf16>} : () -> tensor<bf16>
    %6 = "stablehlo.constant"() {value = dense<0x8000> : tensor<bf16>} : () -> tensor<bf16>
    %7 = "stablehlo.constant"() {value = dense<0x3DCD> : tensor<bf16>} : () -> tensor<bf16>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7) : (tensor<3x2xbf16>, tensor<0x2xbf16>, tensor<2x2xbf16>, tensor<0xbf16>, tensor<bf16>, tensor<bf16>, tensor<bf16>, tensor<bf16>) -> ()
  }
}
