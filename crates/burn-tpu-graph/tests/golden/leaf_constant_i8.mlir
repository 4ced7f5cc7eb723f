// %0 = constant {value = 0x01264b7095ba} : i8[3,2]
// %1 = constant {value = 0x} : i8[0,2]
// %2 = constant {value = -1} : i8[2,2]
// %3 = constant {value = 1} : i8[0]
// %4 = constant {value = 0} : i8[]
// %5 = constant {value = -128} : i8[]
// %6 = constant {value = 0} : i8[]
// %7 = constant {value = 0} : i8[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7

module @program {
  func.func @main() -> (tensor<3x2xi8>, tensor<0x2xi8>, tensor<2x2xi8>, tensor<0xi8>, tensor<i8>, tensor<i8>, tensor<i8>, tensor<i8>) {
    %0 = "stablehlo.constant"() {value = dense<"0x01264B7095BA"> : tensor<3x2xi8>} : () -> tensor<3x2xi8>
    %1 = "stablehlo.constant"() {value = dense<> : tensor<0x2xi8>} : () -> tensor<0x2xi8>
    %2 = "stablehlo.constant"() {value = dense<-1> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
    %3 = "stablehlo.constant"() {value = dense<> : tensor<0xi8>} : () -> tensor<0xi8>
    %4 = "stablehlo.constant"() {value = dense<0> : tensor<i8>} : () -> tensor<i8>
    %5 = "stablehlo.constant"() {value = dense<-128> : tensor<i8>} : () -> tensor<i8>
    %6 = "stablehlo.constant"() {value = dense<0> : tensor<i8>} : () -> tensor<i8>
    %7 = "stablehlo.constant"() {value = dense<0> : tensor<i8>} : () -> tensor<i8>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7) : (tensor<3x2xi8>, tensor<0x2xi8>, tensor<2x2xi8>, tensor<0xi8>, tensor<i8>, tensor<i8>, tensor<i8>, tensor<i8>) -> ()
  }
}
