// %0 = parameter {index = 0} : f32[2,3]
// %1 = parameter {index = 1} : f32[1,3]
// %2 = broadcast_in_dim %1 {mapping = [0, 1]} : f32[2,3]
// %3 = add %0, %2 : f32[2,3]
// outputs %3

module @program {
  func.func @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<1x3xf32>) -> (tensor<2x3xf32>) {
    %2 = "stablehlo.broadcast_in_dim"(%arg1) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<1x3xf32>) -> tensor<2x3xf32>
    %3 = "stablehlo.add"(%arg0, %2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%3) : (tensor<2x3xf32>) -> ()
  }
}
