// %0 = parameter {index = 0} : bf16[2,3]
// %1 = parameter {index = 1} : bf16[0]
// %2 = slot {index = 0} : bf16[]
// %3 = pad %0, %2 {low = [1, -1], high = [0, 2], interior = [0, 1]} : bf16[3,6]
// %4 = pad %0, %2 {low = [-1, 0], high = [-1, 0], interior = [0, 0]} : bf16[0,3]
// %5 = pad %1, %2 {low = [2], high = [1], interior = [1]} : bf16[3]
// outputs %3, %4, %5

module @program {
  func.func @main(%arg0: tensor<2x3xbf16>, %arg1: tensor<0xbf16>, %arg2: tensor<1xi32>) -> (tensor<3x6xbf16>, tensor<0x3xbf16>, tensor<3xbf16>) {
    %t0 = "stablehlo.slice"(%arg2) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<1xi32>) -> tensor<1xi32>
    %t1 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %t2 = "stablehlo.bitcast_convert"(%t1) : (tensor<i32>) -> tensor<f32>
    %2 = "stablehlo.convert"(%t2) : (tensor<f32>) -> tensor<bf16>
    %3 = "stablehlo.pad"(%arg0, %2) {edge_padding_low = array<i64: 1, -1>, edge_padding_high = array<i64: 0, 2>, interior_padding = array<i64: 0, 1>} : (tensor<2x3xbf16>, tensor<bf16>) -> tensor<3x6xbf16>
    %4 = "stablehlo.pad"(%arg0, %2) {edge_padding_low = array<i64: -1, 0>, edge_padding_high = array<i64: -1, 0>, interior_padding = array<i64: 0, 0>} : (tensor<2x3xbf16>, tensor<bf16>) -> tensor<0x3xbf16>
    %5 = "stablehlo.pad"(%arg1, %2) {edge_padding_low = array<i64: 2>, edge_padding_high = array<i64: 1>, interior_padding = array<i64: 1>} : (tensor<0xbf16>, tensor<bf16>) -> tensor<3xbf16>
    "func.return"(%3, %4, %5) : (tensor<3x6xbf16>, tensor<0x3xbf16>, tensor<3xbf16>) -> ()
  }
}
