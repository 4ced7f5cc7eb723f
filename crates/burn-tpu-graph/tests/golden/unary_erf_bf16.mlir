// %0 = parameter {index = 0} : bf16[3]
// %1 = erf %0 : bf16[3]
// outputs %1

module @program {
  func.func @main(%arg0: tensor<3xbf16> {tf.aliasing_output = 0 : i32}) -> (tensor<3xbf16>) {
    %1 = "chlo.erf"(%arg0) : (tensor<3xbf16>) -> tensor<3xbf16>
    "func.return"(%1) : (tensor<3xbf16>) -> ()
  }
}
