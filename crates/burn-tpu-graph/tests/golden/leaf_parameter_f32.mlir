// %0 = parameter {index = 0} : f32[2,3]
// %1 = parameter {index = 1} : f32[]
// %2 = parameter {index = 2} : f32[0,3]
// outputs %0, %1, %2

module @program {
  func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<f32>, %arg2: tensor<0x3xf32>) -> (tensor<2x3xf32>, tensor<f32>, tensor<0x3xf32>) {
    "func.return"(%arg0, %arg1, %arg2) : (tensor<2x3xf32>, tensor<f32>, tensor<0x3xf32>) -> ()
  }
}
