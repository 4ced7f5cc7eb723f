// %0 = slot {index = 0} : i1[]
// %1 = slot {index = 1} : i8[]
// %2 = slot {index = 2} : i16[]
// %3 = slot {index = 3} : i32[]
// %4 = slot {index = 4} : i64[]
// %5 = slot {index = 5} : ui8[]
// %6 = slot {index = 6} : ui16[]
// %7 = slot {index = 7} : ui32[]
// %8 = slot {index = 8} : ui64[]
// %9 = slot {index = 9} : bf16[]
// %10 = slot {index = 10} : f16[]
// %11 = slot {index = 11} : f32[]
// %12 = slot {index = 12} : f64[]
// outputs %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12

module @program {
  func.func @main(%arg0: tensor<10xi32>, %arg1: tensor<2xi64>, %arg2: tensor<1xf64>) -> (tensor<i1>, tensor<i8>, tensor<i16>, tensor<i32>, tensor<i64>, tensor<ui8>, tensor<ui16>, tensor<ui32>, tensor<ui64>, tensor<bf16>, tensor<f16>, tensor<f32>, tensor<f64>) {
    %t0 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t1 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %0 = "stablehlo.convert"(%t1) : (tensor<i32>) -> tensor<i1>
    %t2 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t3 = "stablehlo.reshape"(%t2) : (tensor<1xi32>) -> tensor<i32>
    %1 = "stablehlo.convert"(%t3) : (tensor<i32>) -> tensor<i8>
    %t4 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 2>, limit_indices = array<i64: 3>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t5 = "stablehlo.reshape"(%t4) : (tensor<1xi32>) -> tensor<i32>
    %2 = "stablehlo.convert"(%t5) : (tensor<i32>) -> tensor<i16>
    %t6 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 3>, limit_indices = array<i64: 4>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %3 = "stablehlo.reshape"(%t6) : (tensor<1xi32>) -> tensor<i32>
    %t7 = "stablehlo.slice"(%arg1) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xi64>) -> tensor<1xi64>
    %4 = "stablehlo.reshape"(%t7) : (tensor<1xi64>) -> tensor<i64>
    %t8 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 4>, limit_indices = array<i64: 5>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t9 = "stablehlo.reshape"(%t8) : (tensor<1xi32>) -> tensor<i32>
    %5 = "stablehlo.convert"(%t9) : (tensor<i32>) -> tensor<ui8>
    %t10 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 5>, limit_indices = array<i64: 6>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t11 = "stablehlo.reshape"(%t10) : (tensor<1xi32>) -> tensor<i32>
    %6 = "stablehlo.convert"(%t11) : (tensor<i32>) -> tensor<ui16>
    %t12 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 6>, limit_indices = array<i64: 7>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t13 = "stablehlo.reshape"(%t12) : (tensor<1xi32>) -> tensor<i32>
    %7 = "stablehlo.bitcast_convert"(%t13) : (tensor<i32>) -> tensor<ui32>
    %t14 = "stablehlo.slice"(%arg1) {start_indices = array<i64: 1>, limit_indices = array<i64: 2>, strides = array<i64: 1>} : (tensor<2xi64>) -> tensor<1xi64>
    %t15 = "stablehlo.reshape"(%t14) : (tensor<1xi64>) -> tensor<i64>
    %8 = "stablehlo.convert"(%t15) : (tensor<i64>) -> tensor<ui64>
    %t16 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 7>, limit_indices = array<i64: 8>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t17 = "stablehlo.reshape"(%t16) : (tensor<1xi32>) -> tensor<i32>
    %t18 = "stablehlo.bitcast_convert"(%t17) : (tensor<i32>) -> tensor<f32>
    %9 = "stablehlo.convert"(%t18) : (tensor<f32>) -> tensor<bf16>
    %t19 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 8>, limit_indices = array<i64: 9>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t20 = "stablehlo.reshape"(%t19) : (tensor<1xi32>) -> tensor<i32>
    %t21 = "stablehlo.bitcast_convert"(%t20) : (tensor<i32>) -> tensor<f32>
    %10 = "stablehlo.convert"(%t21) : (tensor<f32>) -> tensor<f16>
    %t22 = "stablehlo.slice"(%arg0) {start_indices = array<i64: 9>, limit_indices = array<i64: 10>, strides = array<i64: 1>} : (tensor<10xi32>) -> tensor<1xi32>
    %t23 = "stablehlo.reshape"(%t22) : (tensor<1xi32>) -> tensor<i32>
    %11 = "stablehlo.bitcast_convert"(%t23) : (tensor<i32>) -> tensor<f32>
    %t24 = "stablehlo.slice"(%arg2) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<1xf64>) -> tensor<1xf64>
    %12 = "stablehlo.reshape"(%t24) : (tensor<1xf64>) -> tensor<f64>
    "func.return"(%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12) : (tensor<i1>, tensor<i8>, tensor<i16>, tensor<i32>, tensor<i64>, tensor<ui8>, tensor<ui16>, tensor<ui32>, tensor<ui64>, tensor<bf16>, tensor<f16>, tensor<f32>, tensor<f64>) -> ()
  }
}
