// %0 = parameter {index = 0} : i1[3]
// %1 = parameter {index = 1} : f32[3]
// %2 = parameter {index = 2} : f32[3]
// %3 = select %0, %1, %2 : f32[3]
// outputs %3

module @program {
  func.func @main(%arg0: tensor<3xi1>, %arg1: tensor<3xf32> {tf.aliasing_output = 0 : i32}, %arg2: tensor<3xf32>) -> (tensor<3xf32>) {
    %3 = "stablehlo.select"(%arg0, %arg1, %arg2) : (tensor<3xi1>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    "func.return"(%3) : (tensor<3xf32>) -> ()
  }
}
