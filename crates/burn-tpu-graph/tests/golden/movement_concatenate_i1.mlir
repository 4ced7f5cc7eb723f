// %0 = parameter {index = 0} : i1[2,3]
// %1 = parameter {index = 1} : i1[2,1]
// %2 = parameter {index = 2} : i1[2,0]
// %3 = concatenate %0, %1, %2, %0 {dim = 1} : i1[2,7]
// %4 = concatenate %0, %0 {dim = 0} : i1[4,3]
// outputs %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3xi1>, %arg1: tensor<2x1xi1>, %arg2: tensor<2x0xi1>) -> (tensor<2x7xi1>, tensor<4x3xi1>) {
    %3 = "stablehlo.concatenate"(%arg0, %arg1, %arg2, %arg0) {dimension = 1 : i64} : (tensor<2x3xi1>, tensor<2x1xi1>, tensor<2x0xi1>, tensor<2x3xi1>) -> tensor<2x7xi1>
    %4 = "stablehlo.concatenate"(%arg0, %arg0) {dimension = 0 : i64} : (tensor<2x3xi1>, tensor<2x3xi1>) -> tensor<4x3xi1>
    "func.return"(%3, %4) : (tensor<2x7xi1>, tensor<4x3xi1>) -> ()
  }
}
