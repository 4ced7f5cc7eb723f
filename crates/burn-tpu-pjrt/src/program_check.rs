//! Refuses program text that is known to crash the process inside a plugin. It is a safety net, not a verifier.
//!
//! Programs normally come from this project's own verifier, which rules all of this out; the check is for text from
//! elsewhere. It scans the text once, skips strings and comments, and finds: dynamic and unranked tensor types (libtpu
//! aborts), tensor types whose size overflows (both plugins abort), functions that call themselves, directly or in a cycle
//! (both overflow their stack), brackets nested deeper than [`MAX_DEPTH`] (the parser recurses), and empty text. Types
//! under an alias (`!t = ...`) are found where the alias is defined. Not found: a shape that only becomes too large in
//! XLA's shape inference.

use std::collections::HashMap;

use crate::error::{PjrtError, Result};

/// Far above the depth that any lowering emits, far below the depth that overflows a thread's stack in MLIR's parser.
const MAX_DEPTH: usize = 256;
/// The largest element size in bytes (`complex<f64>`).
const WIDEST_ELEMENT: u64 = 16;

pub(crate) fn check(text: &str) -> Result<()> {
    if text.trim().is_empty() {
        return Err(PjrtError::Program { line: 1, reason: "the text is empty".into() });
    }
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, depth: 0, functions: Vec::new() };
    let found = scan.run().and_then(|()| acyclic(&scan.functions));
    found.map_err(|(at, reason)| {
        let line = 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count();
        PjrtError::Program { line, reason }
    })
}

/// The byte offset of a problem, and its description.
type Finding = (usize, String);

/// A function and the symbols used in its body.
struct Function<'a> {
    name: &'a [u8],
    at: usize,
    names: Vec<&'a [u8]>,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    functions: Vec<Function<'a>>,
}

impl<'a> Scan<'a> {
    fn run(&mut self) -> Result<(), Finding> {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'/' if self.rest().starts_with(b"//") => self.skip_line(),
                b'{' | b'(' | b'[' => self.open()?,
                b'}' | b')' | b']' => self.depth = self.depth.saturating_sub(1),
                b'@' => self.symbol(),
                b't' if self.rest().starts_with(b"tensor<") && !self.inside_word() => self.tensor_type()?,
                b'f' if self.rest().starts_with(b"func.func") && !self.inside_word() => self.function(),
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn inside_word(&self) -> bool {
        self.at > 0 && is_word(self.bytes[self.at - 1])
    }

    /// Advances to the closing quote.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => return,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    fn skip_line(&mut self) {
        while self.bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
            self.at += 1;
        }
    }

    fn open(&mut self) -> Result<(), Finding> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((self.at, format!("brackets are nested deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }

    /// Reads `@name` or `@"name"`, at the `@`, as a use inside the current function. Advances to its last byte.
    fn symbol(&mut self) {
        let name = symbol_name(&self.bytes[self.at + 1..]);
        if let Some(function) = self.functions.last_mut() {
            function.names.push(name);
        }
        self.at += name.len();
    }

    /// Reads `func.func ... @name`: the next symbol is the function's own name, also after `public` or `private`.
    fn function(&mut self) {
        let Some(offset) = self.rest().iter().position(|&byte| byte == b'@') else { return };
        let at = self.at + offset;
        let name = symbol_name(&self.bytes[at + 1..]);
        self.functions.push(Function { name, at, names: Vec::new() });
        self.at = at + name.len();
    }

    /// Reads the dimensions after `tensor<`, up to the element type.
    fn tensor_type(&mut self) -> Result<(), Finding> {
        let start = self.at;
        self.at += b"tensor<".len();
        let mut bytes = WIDEST_ELEMENT;
        loop {
            match self.bytes.get(self.at) {
                Some(b'?') => return Err((start, "dynamic dimensions (`tensor<?`) are not supported".into())),
                Some(b'*') => return Err((start, "unranked tensors (`tensor<*`) are not supported".into())),
                Some(byte) if byte.is_ascii_digit() => {}
                _ => break,
            }
            let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
            let dim = std::str::from_utf8(&self.rest()[..digits]).ok().and_then(|digits| digits.parse::<u64>().ok());
            // A dimension of 0 counts as 1: XLA multiplies in any order.
            let product = dim.and_then(|dim| bytes.checked_mul(dim.max(1))).filter(|&n| n <= i64::MAX as u64);
            let Some(product) = product else {
                return Err((start, "the size of a tensor type in bytes overflows".into()));
            };
            bytes = product;
            self.at += digits;
            match self.bytes.get(self.at) {
                Some(b'x') => self.at += 1,
                _ => break,
            }
        }
        // The loop in `run` skips one byte: the element type's first letter, or the closing bracket.
        self.at -= 1;
        Ok(())
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'-')
}

/// Returns the name after an `@`, quotes included.
fn symbol_name(rest: &[u8]) -> &[u8] {
    let length = match rest.first() {
        Some(b'"') => rest[1..].iter().position(|&byte| byte == b'"').map_or(rest.len(), |end| end + 2),
        _ => rest.iter().take_while(|&&byte| is_word(byte)).count(),
    };
    &rest[..length]
}

/// Refuses a cycle of functions that name each other. A mention counts as a call: lowerings name functions only in calls.
fn acyclic(functions: &[Function<'_>]) -> Result<(), Finding> {
    let index: HashMap<&[u8], usize> = functions.iter().enumerate().map(|(i, function)| (function.name, i)).collect();
    let mut callers = vec![0usize; functions.len()];
    let callees = |i: usize| functions[i].names.iter().filter_map(|name| index.get(name).copied());
    (0..functions.len()).flat_map(callees).for_each(|callee| callers[callee] += 1);
    // Remove functions without (remaining) callers; those that remain are on a cycle or are called from one.
    let mut free: Vec<usize> = (0..functions.len()).filter(|&i| callers[i] == 0).collect();
    let mut taken = 0;
    while let Some(i) = free.pop() {
        taken += 1;
        for callee in callees(i) {
            callers[callee] -= 1;
            if callers[callee] == 0 {
                free.push(callee);
            }
        }
    }
    let stuck = (0..functions.len()).find(|&i| callers[i] != 0).filter(|_| taken < functions.len());
    stuck.map_or(Ok(()), |i| {
        let name = String::from_utf8_lossy(functions[i].name);
        Err((functions[i].at, format!("function @{name} calls itself, directly or through others")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        match check(text).unwrap_err() {
            PjrtError::Program { line, reason } => (line, reason),
            other => panic!("{other}"),
        }
    }

    const CALLS: &str = "module {\n func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  \
        %0 = func.call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>\n  %1 = func.call @f(%0) : (tensor<2xf32>) -> \
        tensor<2xf32>\n  return %1 : tensor<2xf32>\n }\n func.func private @f(%a: tensor<2xf32>) -> tensor<2xf32> {\n  \
        return %a : tensor<2xf32>\n }\n}";

    #[test]
    fn calls_without_a_cycle_pass() {
        check(CALLS).unwrap();
    }

    #[test]
    fn recursion_is_refused_with_its_line() {
        let itself =
            CALLS.replace("  return %a", "  %0 = func.call @f(%a) : (tensor<2xf32>) -> tensor<2xf32>\n  return %a");
        let (line, reason) = refused(&itself);
        assert!(line == 7 && reason.contains("@f calls itself"), "{line}: {reason}");
        let circle =
            CALLS.replace("  return %a", "  %0 = \"func.call\"(%a) <{callee = @main}> : (i1) -> i1\n  return %a");
        assert!(refused(&circle).1.contains("calls itself"));
    }

    #[test]
    fn dynamic_and_unranked_types_are_refused() {
        assert!(refused("func.func @main(%a: tensor<?xf32>)").1.contains("dynamic"));
        assert!(refused("\n\nfunc.func @main(%a: tensor<4x?xf32>)").1.contains("dynamic"));
        assert_eq!(refused("\n\nfunc.func @main(%a: tensor<*xf32>)").0, 3);
    }

    #[test]
    fn overflowing_types_are_refused() {
        for dims in
            ["9223372036854775807x2", "4294967296x4294967296", "99999999999999999999", "0x4294967296x4294967296"]
        {
            assert!(refused(&format!("%0 = x : tensor<{dims}xi8>")).1.contains("overflows"), "{dims}");
        }
        check("%0 = x : tensor<1048576x1048576xf32>").unwrap();
        check("%0 = x : tensor<f32>, tensor<0x3xf32>, tensor<2xcomplex<f32>>, tensor<4>").unwrap();
    }

    #[test]
    fn strings_and_comments_are_skipped() {
        check("// tensor<?xf32> @main\n%0 = \"tensor<?xf32> \\\" ((((\" : tensor<2xf32>").unwrap();
        check("func.func @main() { custom_call @Sharding(%0) {sharding = \"@main\"} }").unwrap();
    }

    #[test]
    fn empty_text_and_deep_nesting_are_refused() {
        assert!(refused(" \n ").1.contains("empty"));
        assert!(refused(&"(".repeat(MAX_DEPTH + 1)).1.contains("nested"));
        check(&"(".repeat(MAX_DEPTH)).unwrap();
    }

    #[test]
    fn broken_text_never_panics() {
        for text in
            ["\"", "\"\\", "@", "@\"x", "tensor<", "tensor<4x", "func.func", "func.func @", "\u{e9}tensor<1xf32>", "/"]
        {
            let _ = check(text);
        }
    }
}
