// %0 = parameter {index = 0} : f32[4,5]
// %1 = parameter {index = 1} : f32[2,3]
// %2 = slot {index = 0} : i32[]
// %3 = slot {index = 1} : i32[]
// %4 = slot {index = 2} : i64[]
// %5 = offset {index = 3} : i64[]
// %6 = dynamic_slice %0, %2, %3 : f32[2,3]
// %7 = dynamic_slice %0, %4, %5 : f32[4,1]
// %8 = dynamic_update_slice %0, %1, %2, %3 : f32[4,5]
// outputs %6, %7, %8

module @program {
  func.func @main(%arg0: tensor<4x5xf32> {tf.aliasing_output = 2 : i32}, %arg1: tensor<2x3xf32>, %arg2: tensor<2xi32>, %arg3: tensor<2xi64>) -> (tensor<2x3xf32>, tensor<4x1xf32>, tensor<4x5xf32>) {
    %t0 = "stablehlo.slice"(%arg2) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xi32>) -> tensor<1xi32>
    %2 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %t1 = "stablehlo.slice"(%arg2) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xi32>) -> tensor<1xi32>
    %3 = "stablehlo.reshape"(%t1) : (tensor<1xi32>) -> tensor<i32>
    %t2 = "stablehlo.slice"(%arg3) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xi64>) -> tensor<1xi64>
    %4 = "stablehlo.reshape"(%t2) : (tensor<1xi64>) -> tensor<i64>
    %t3 = "stablehlo.slice"(%arg3) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xi64>) -> tensor<1xi64>
    %5 = "stablehlo.reshape"(%t3) : (tensor<1xi64>) -> tensor<i64>
    %6 = "stablehlo.dynamic_slice"(%arg0, %2, %3) {slice_sizes = array<i64: 2, 3>} : (tensor<4x5xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    %7 = "stablehlo.dynamic_slice"(%arg0, %4, %5) {slice_sizes = array<i64: 4, 1>} : (tensor<4x5xf32>, tensor<i64>, tensor<i64>) -> tensor<4x1xf32>
    %8 = "stablehlo.dynamic_update_slice"(%arg0, %arg1, %2, %3) : (tensor<4x5xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x5xf32>
    "func.return"(%6, %7, %8) : (tensor<2x3xf32>, tensor<4x1xf32>, tensor<4x5xf32>) -> ()
  }
}
