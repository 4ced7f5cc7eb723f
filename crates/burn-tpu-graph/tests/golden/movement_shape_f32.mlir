// %0 = parameter {index = 0} : f32[2,3]
// %1 = parameter {index = 1} : f32[1]
// %2 = parameter {index = 2} : f32[0,2]
// %3 = reshape %1 : f32[]
// %4 = broadcast_in_dim %0 {mapping = [0, 2]} : f32[2,4,3]
// %5 = broadcast_in_dim %1 {mapping = [0]} : f32[4]
// %6 = broadcast_in_dim %3 {mapping = []} : f32[2,2]
// %7 = broadcast_in_dim %3 {mapping = []} : f32[0]
// %8 = reshape %0 : f32[3,1,2]
// %9 = reshape %2 : f32[3,0]
// outputs %4, %5, %6, %7, %3, %8, %9

module @program {
  func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<1xf32>, %arg2: tensor<0x2xf32>) -> (tensor<2x4x3xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<0xf32>, tensor<f32>, tensor<3x1x2xf32>, tensor<3x0xf32>) {
    %3 = "stablehlo.reshape"(%arg1) : (tensor<1xf32>) -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%arg0) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<2x4x3xf32>
    %5 = "stablehlo.broadcast_in_dim"(%arg1) {broadcast_dimensions = array<i64: 0>} : (tensor<1xf32>) -> tensor<4xf32>
    %6 = "stablehlo.broadcast_in_dim"(%3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x2xf32>
    %7 = "stablehlo.broadcast_in_dim"(%3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<0xf32>
    %8 = "stablehlo.reshape"(%arg0) : (tensor<2x3xf32>) -> tensor<3x1x2xf32>
    %9 = "stablehlo.reshape"(%arg2) : (tensor<0x2xf32>) -> tensor<3x0xf32>
    "func.return"(%4, %5, %6, %7, %3, %8, %9) : (tensor<2x4x3xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<0xf32>, tensor<f32>, tensor<3x1x2xf32>, tensor<3x0xf32>) -> ()
  }
}
