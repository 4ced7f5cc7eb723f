// %0 = parameter {index = 0} : f32[2,3]
// %1 = parameter {index = 1} : i32[]
// %2 = custom_call %0, %1 {name = twice, form = stablehlo(147d7766aec7aa09e63a195da91102d9f9e473a9150e4d720c6691b4f0ef769b (f32[2,3], i32[]) -> (f32[2,3], i32[])), plain = (%0 = parameter {index = 0} : f32[2,3]; %1 = parameter {index = 1} : i32[]; %2 = add %0, %0 : f32[2,3]; %3 = constant {value = 1} : i32[]; %4 = add %1, %3 : i32[]; outputs %2, %4)} : f32[2,3], i32[]
// %3 = get_result %2 {index = 1} : i32[]
// %4 = custom_call %2, %3 {name = twice, form = stablehlo(147d7766aec7aa09e63a195da91102d9f9e473a9150e4d720c6691b4f0ef769b (f32[2,3], i32[]) -> (f32[2,3], i32[])), plain = (%0 = parameter {index = 0} : f32[2,3]; %1 = parameter {index = 1} : i32[]; %2 = add %0, %0 : f32[2,3]; %3 = constant {value = 1} : i32[]; %4 = add %1, %3 : i32[]; outputs %2, %4)} : f32[2,3], i32[]
// outputs %3, %4

module @program {
  func.func @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> (tensor<i32>, tensor<2x3xf32>) {
    %2:2 = "func.call"(%arg0, %arg1) {callee = @twice_25d5646636bf} : (tensor<2x3xf32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<i32>)
    %4:2 = "func.call"(%2#0, %2#1) {callee = @twice_25d5646636bf} : (tensor<2x3xf32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<i32>)
    "func.return"(%2#1, %4#0) : (tensor<i32>, tensor<2x3xf32>) -> ()
  }
  func.func private @twice_25d5646636bf(%x: tensor<2x3xf32>, %n: tensor<i32>) -> (tensor<2x3xf32>, tensor<i32>) {
            %0 = call @twice_25d5646636bf_twice(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %1 = stablehlo.add %n, %one : tensor<i32>
            return %0, %1 : tensor<2x3xf32>, tensor<i32>
          }
  func.func private @twice_25d5646636bf_twice(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
            %0 = stablehlo.add %x, %x : tensor<2x3xf32>
            return %0 : tensor<2x3xf32>
          }
}
