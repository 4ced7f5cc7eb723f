// outputs

module @program {
  func.func @main() -> () {
    "func.return"() : () -> ()
  }
}
