// %0 = iota {dim = 1} : i32[2,3]
// %1 = iota {dim = 0} : i32[2,3]
// %2 = iota {dim = 0} : i32[0,3]
// outputs %0, %1, %2

module @program {
  func.func @main() -> (tensor<2x3xi32>, tensor<2x3xi32>, tensor<0x3xi32>) {
    %0 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xi32>
    %1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2x3xi32>
    %2 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<0x3xi32>
    "func.return"(%0, %1, %2) : (tensor<2x3xi32>, tensor<2x3xi32>, tensor<0x3xi32>) -> ()
  }
}
