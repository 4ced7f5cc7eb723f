// %0 = parameter {index = 0} : f32[4]
// outputs %0, %0

module @program {
  func.func @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    "func.return"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }
}
