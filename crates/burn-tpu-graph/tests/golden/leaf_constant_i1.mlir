// %0 = constant {value = 0x010001000100} : i1[3,2]
// %1 = constant {value = 0x} : i1[0,2]
// %2 = constant {value = true} : i1[2,2]
// %3 = constant {value = true} : i1[0]
// %4 = constant {value = true} : i1[]
// %5 = constant {value = true} : i1[]
// %6 = constant {value = false} : i1[]
// %7 = constant {value = true} : i1[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7

module @program {
  func.func @main() -> (tensor<3x2xi1>, tensor<0x2xi1>, tensor<2x2xi1>, tensor<0xi1>, tensor<i1>, tensor<i1>, tensor<i1>, tensor<i1>) {
    %t0 = "stablehlo.constant"() {value = dense<"0x010001000100"> : tensor<3x2xui8>} : () -> tensor<3x2xui8>
    %0 = "stablehlo.convert"(%t0) : (tensor<3x2xui8>) -> tensor<3x2xi1>
    %1 = "stablehlo.constant"() {value = dense<> : tensor<0x2xi1>} : () -> tensor<0x2xi1>
    %2 = "stablehlo.constant"() {value = dense<true> : tensor<2x2xi1>} : () -> tensor<2x2xi1>
    %3 = "stablehlo.constant"() {value = dense<> : tensor<0xi1>} : () -> tensor<0xi1>
    %4 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %5 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %6 = "stablehlo.constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
    %7 = "stablehlo.constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7) : (tensor<3x2xi1>, tensor<0x2xi1>, tensor<2x2xi1>, tensor<0xi1>, tensor<i1>, tensor<i1>, tensor<i1>, tensor<i1>) -> ()
  }
}
