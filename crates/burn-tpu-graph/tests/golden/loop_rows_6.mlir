// %0 = parameter {index = 0} : f32[6,5]
// %1 = slot {index = 0} : f32[]
// %2 = constant {value = 0.0} : f32[5]
// %3 = parameter {index = 1} : i32[2]
// %4 = for %0, %1, %2, %3 {trips = 6, body = (%0 = parameter {index = 0} : f32[6,5]; %1 = parameter {index = 1} : f32[]; %2 = parameter {index = 2} : f32[5]; %3 = parameter {index = 4} : i32[]; %4 = constant {value = 0} : i32[]; %5 = dynamic_slice %0, %3, %4 : f32[1,5]; %6 = reshape %5 : f32[5]; %7 = broadcast_in_dim %1 {mapping = []} : f32[5]; %8 = multiply %6, %7 : f32[5]; %9 = add %2, %8 : f32[5]; %10 = reshape %9 : f32[1,5]; %11 = dynamic_update_slice %0, %10, %3, %4 : f32[6,5]; %12 = constant {value = 7} : i32[2]; outputs %11, %1, %9, %12)} : f32[6,5], f32[], f32[5], i32[2]
// %5 = get_result %4 {index = 1} : f32[]
// %6 = get_result %4 {index = 2} : f32[5]
// %7 = get_result %4 {index = 3} : i32[2]
// outputs %4, %5, %6, %7

module @program {
  func.func @main(%arg0: tensor<6x5xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<2xi32>, %arg2: tensor<1xi32>) -> (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>) {
    %t0 = "stablehlo.slice"(%arg2) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<1xi32>) -> tensor<1xi32>
    %t1 = "stablehlo.reshape"(%t0) : (tensor<1xi32>) -> tensor<i32>
    %1 = "stablehlo.bitcast_convert"(%t1) : (tensor<i32>) -> tensor<f32>
    %2 = "stablehlo.constant"() {value = dense<0x00000000> : tensor<5xf32>} : () -> tensor<5xf32>
    %t2 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %4:5 = "stablehlo.while"(%arg0, %1, %2, %arg1, %t2) ({
    ^bb0(%a0: tensor<6x5xf32>, %a1: tensor<f32>, %a2: tensor<5xf32>, %a3: tensor<2xi32>, %a4: tensor<i32>):
      %r0 = "stablehlo.constant"() {value = dense<6> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.compare"(%a4, %r0) {comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%r1) : (tensor<i1>) -> ()
    }, {
    ^bb0(%a0: tensor<6x5xf32>, %a1: tensor<f32>, %a2: tensor<5xf32>, %a3: tensor<2xi32>, %a4: tensor<i32>):
      %left:4 = "func.call"(%a0, %a1, %a2, %a4) {callee = @body0} : (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<i32>) -> (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>)
      %r0 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
      %r1 = "stablehlo.add"(%a4, %r0) : (tensor<i32>, tensor<i32>) -> tensor<i32>
      "stablehlo.return"(%left#0, %left#1, %left#2, %left#3, %r1) : (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>, tensor<i32>) -> ()
    }) : (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>, tensor<i32>) -> (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>, tensor<i32>)
    "func.return"(%4#0, %4#1, %4#2, %4#3) : (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>) -> ()
  }
  func.func private @body0(%arg0: tensor<6x5xf32>, %arg1: tensor<f32>, %arg2: tensor<5xf32>, %arg3: tensor<i32>) -> (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>) {
    %4 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %5 = "stablehlo.dynamic_slice"(%arg0, %arg3, %4) {slice_sizes = array<i64: 1, 5>} : (tensor<6x5xf32>, tensor<i32>, tensor<i32>) -> tensor<1x5xf32>
    %6 = "stablehlo.reshape"(%5) : (tensor<1x5xf32>) -> tensor<5xf32>
    %7 = "stablehlo.broadcast_in_dim"(%arg1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<5xf32>
    %8 = "stablehlo.multiply"(%6, %7) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %9 = "stablehlo.add"(%arg2, %8) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
    %10 = "stablehlo.reshape"(%9) : (tensor<5xf32>) -> tensor<1x5xf32>
    %11 = "stablehlo.dynamic_update_slice"(%arg0, %10, %arg3, %4) : (tensor<6x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<6x5xf32>
    %12 = "stablehlo.constant"() {value = dense<7> : tensor<2xi32>} : () -> tensor<2xi32>
    "func.return"(%11, %arg1, %9, %12) : (tensor<6x5xf32>, tensor<f32>, tensor<5xf32>, tensor<2xi32>) -> ()
  }
}
