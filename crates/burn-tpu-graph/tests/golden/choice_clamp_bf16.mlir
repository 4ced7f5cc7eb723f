// %0 = slot {index = 0} : bf16[]
// %1 = slot {index = 1} : bf16[]
// %2 = parameter {index = 0} : bf16[3]
// %3 = broadcast_in_dim %0 {mapping = []} : bf16[3]
// %4 = broadcast_in_dim %1 {mapping = []} : bf16[3]
// %5 = clamp %3, %2, %4 : bf16[3]
// outputs %5

module @program {
  func.func @main(%arg0: tensor<3xbf16> {tf.aliasing_output = 0 : i32}, %arg1: tensor<2xi32>) -> (tensor<3xbf16>) {
    %t0 = "stablehlo.slice"(%arg1) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xi32>) -> tensor<1xi32>
    %t1 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %t2 = "stablehlo.bitcast_convert"(%t1) : (tensor<i32>) -> tensor<f32>
    %0 = "stablehlo.convert"(%t2) : (tensor<f32>) -> tensor<bf16>
    %t3 = "stablehlo.slice"(%arg1) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xi32>) -> tensor<1xi32>
    %t4 = "stablehlo.reshape"(%t3) : (tensor<1xi32>) -> tensor<i32>
    %t5 = "stablehlo.bitcast_convert"(%t4) : (tensor<i32>) -> tensor<f32>
    %1 = "stablehlo.convert"(%t5) : (tensor<f32>) -> tensor<bf16>
    %3 = "stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64>} : (tensor<bf16>) -> tensor<3xbf16>
    %4 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64>} : (tensor<bf16>) -> tensor<3xbf16>
    %5 = "stablehlo.clamp"(%3, %arg0, %4) : (tensor<3xbf16>, tensor<3xbf16>, tensor<3xbf16>) -> tensor<3xbf16>
    "func.return"(%5) : (tensor<3xbf16>) -> ()
  }
}
