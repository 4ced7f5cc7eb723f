// %0 = parameter {index = 0} : f32[2,3,4]
// %1 = parameter {index = 1} : f32[0,2]
// %2 = transpose %0 {permutation = [2, 0, 1]} : f32[4,2,3]
// %3 = transpose %1 {permutation = [1, 0]} : f32[2,0]
// %4 = reverse %0 {dims = [0, 2]} : f32[2,3,4]
// %5 = slice %0 {start = [0, 1, 0], limit = [2, 3, 4], stride = [1, 1, 3]} : f32[2,2,2]
// %6 = slice %0 {start = [1, 1, 1], limit = [1, 1, 4], stride = [1, 1, 2]} : f32[0,0,2]
// outputs %2, %3, %4, %5, %6

module @program {
  func.func @main(%arg0: tensor<2x3x4xf32>, %arg1: tensor<0x2xf32>) -> (tensor<4x2x3xf32>, tensor<2x0xf32>, tensor<2x3x4xf32>, tensor<2x2x2xf32>, tensor<0x0x2xf32>) {
    %2 = "stablehlo.transpose"(%arg0) {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
    %3 = "stablehlo.transpose"(%arg1) {permutation = array<i64: 1, 0>} : (tensor<0x2xf32>) -> tensor<2x0xf32>
    %4 = "stablehlo.reverse"(%arg0) {dimensions = array<i64: 0, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
    %5 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 0, 1, 0>, limit_indices = array<i64: 2, 3, 4>, strides = array<i64: 1, 1, 3>} : (tensor<2x3x4xf32>) -> tensor<2x2x2xf32>
    %6 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 1, 1, 1>, limit_indices = array<i64: 1, 1, 4>, strides = array<i64: 1, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<0x0x2xf32>
    "func.return"(%2, %3, %4, %5, %6) : (tensor<4x2x3xf32>, tensor<2x0xf32>, tensor<2x3x4xf32>, tensor<2x2x2xf32>, tensor<0x0x2xf32>) -> ()
  }
}
