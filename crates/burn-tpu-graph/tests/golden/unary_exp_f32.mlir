// %0 = parameter {index = 0} : f32[3]
// %1 = exponential %0 : f32[3]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<3xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<3xf32>) {
    %1 = "stablehlo.exponential"(%arg0) : (tensor<3xf32>) -> tensor<3xf32>
    "func.return"(%1) : (tensor<3xf32>) -> ()
  }
}
