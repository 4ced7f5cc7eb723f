// %0 = parameter {index = 0} : f32[3]
// %1 = is_finite %0 : i1[3]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<3xf32>) -> (tensor<3xi1>) {
    %1 = "stablehlo.is_finite"(%arg0) : (tensor<3xf32>) -> tensor<3xi1>
    "func.return"(%1) : (tensor<3xi1>) -> ()
  }
}
