//! A function in StableHLO text that someone else wrote: its signature, and its text under other names.
//!
//! The text is one or more `func.func` in MLIR's pretty form, alone or in a `module`, as `jax.jit(f).lower(..).as_text()`
//! prints it. The function that is called is `@main`, or the only one that is not private. This module reads what stands
//! around the bodies; what is in them is for the plugin's parser.

use super::{error, list};
use crate::{DType, GraphError, Result, TensorType};

/// A function in StableHLO text, with those that it calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StableHlo {
    source: String,
    functions: Vec<Function>,
    entry: usize,
    operands: Vec<TensorType>,
    results: Vec<TensorType>,
}

/// One function of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    name: String,
    is_private: bool,
    /// What is between the name and the body: parameters, results, attributes.
    signature: Signature,
    /// The body with its braces.
    body: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Signature {
    /// Each parameter's name and the text of its type.
    parameters: Vec<(String, String)>,
    results: Vec<String>,
}

/// A rule of the text that does not hold.
type Rule<T> = std::result::Result<T, String>;

impl StableHlo {
    /// Reads the text of a function.
    ///
    /// # Errors
    /// Text that is not made of functions in the pretty form, no function or several that could be called, and types that
    /// are not tensors of static sizes.
    pub fn parse(text: impl Into<String>) -> Result<Self, GraphError> {
        let source = text.into();
        Self::read(&source).map_err(|rule| error("stablehlo", &[], rule))
    }

    fn read(source: &str) -> Rule<Self> {
        let text = without_comments(source);
        let functions = functions(in_module(&text)?)?;
        let entry = entry(&functions)?;
        let signature = &functions[entry].signature;
        let operands = signature.parameters.iter().map(|(_, ty)| tensor_type(ty)).collect::<Rule<_>>()?;
        let results = signature.results.iter().map(|ty| tensor_type(ty)).collect::<Rule<_>>()?;
        Ok(Self { source: source.to_owned(), entry, operands, results, functions })
    }

    /// Returns the text as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the name of the function.
    pub fn name(&self) -> &str {
        &self.functions[self.entry].name
    }

    /// Returns the types of the parameters.
    pub fn operands(&self) -> &[TensorType] {
        &self.operands
    }

    /// Returns the types of the results.
    pub fn results(&self) -> &[TensorType] {
        &self.results
    }

    /// Returns the text of private functions: the one that is called has this name, the others names that begin with it.
    pub(crate) fn renamed(&self, name: &str) -> String {
        let new_name = |of: &str| {
            let place = self.functions.iter().position(|function| function.name == of)?;
            Some(if place == self.entry { name.to_owned() } else { format!("{name}_{of}") })
        };
        let function = |function: &Function| {
            let Signature { parameters, results } = &function.signature;
            let takes: Vec<String> = parameters.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
            let own = new_name(&function.name).unwrap_or_default();
            let (takes, gives) = (takes.join(", "), results.join(", "));
            format!("  func.func private @{own}({takes}) -> ({gives}) {}\n", with_symbols(&function.body, new_name))
        };
        self.functions.iter().map(function).collect()
    }
}

/// Returns the function to call.
fn entry(functions: &[Function]) -> Rule<usize> {
    if let Some((place, function)) = functions.iter().enumerate().find(|(place, function)| {
        let before = &functions[..*place];
        before.iter().any(|other| other.name == function.name)
    }) {
        return Err(format!("function {place} has the name @{} of an earlier one", function.name));
    }
    if let Some(main) = functions.iter().position(|function| function.name == "main") {
        return Ok(main);
    }
    let mut public = functions.iter().enumerate().filter(|(_, function)| !function.is_private || functions.len() == 1);
    match (public.next(), public.next()) {
        (Some((place, _)), None) => Ok(place),
        (None, _) => Err("it has no function that is not private".into()),
        (Some((_, first)), Some((_, second))) => {
            let (first, second) = (&first.name, &second.name);
            Err(format!("both @{first} and @{second} could be called: make one private, or name one @main"))
        }
    }
}

/// Returns what is in the braces of a `module`, or all of the text if there is none.
fn in_module(text: &str) -> Rule<&str> {
    let mut cursor = Cursor { text, at: 0 };
    if !cursor.eat("module") {
        return Ok(text);
    }
    if cursor.eat("@") {
        cursor.word();
    }
    if cursor.eat("attributes") {
        cursor.group('{', '}')?;
    }
    let inside = cursor.group('{', '}')?;
    match cursor.rest() {
        "" => Ok(&inside[1..inside.len() - 1]),
        other => Err(format!("{:?} is after the module", start(other))),
    }
}

fn functions(text: &str) -> Rule<Vec<Function>> {
    let (mut cursor, mut functions) = (Cursor { text, at: 0 }, Vec::new());
    while !cursor.rest().is_empty() {
        if !cursor.eat("func.func") {
            let found = start(cursor.rest());
            return Err(format!("expected `func.func @name(..) -> .. {{..}}`, found {found:?}"));
        }
        functions.push(function(&mut cursor)?);
    }
    match functions.is_empty() {
        true => Err("it has no function".into()),
        false => Ok(functions),
    }
}

/// Reads a function after the words `func.func`.
fn function(cursor: &mut Cursor) -> Rule<Function> {
    let is_private = cursor.eat("private");
    if !is_private {
        cursor.eat("public");
    }
    if !cursor.eat("@") {
        return Err(format!("expected a function's `@name`, found {:?}", start(cursor.rest())));
    }
    let name = cursor.word().to_owned();
    let in_function = |rule: String| format!("@{name}: {rule}");
    let signature = signature(cursor).map_err(in_function)?;
    if cursor.eat("attributes") {
        cursor.group('{', '}').map_err(in_function)?;
    }
    let body = cursor.group('{', '}').map_err(in_function)?.to_owned();
    if name.is_empty() {
        return Err("a function has no name".into());
    }
    Ok(Function { name, is_private, signature, body })
}

fn signature(cursor: &mut Cursor) -> Rule<Signature> {
    let inside = |group: &'_ str| group[1..group.len() - 1].to_owned();
    let takes = inside(cursor.group('(', ')')?);
    let parameter = |text: &str| {
        let (name, ty) = text.split_once(':').ok_or_else(|| format!("{text:?} is not a parameter `%name: type`"))?;
        let name = name.trim();
        match name.starts_with('%') {
            true => Ok((name.to_owned(), without_attributes(ty).to_owned())),
            false => Err(format!("{name:?} is not the name of a parameter, which begins with `%`")),
        }
    };
    let parameters = items(&takes).into_iter().map(parameter).collect::<Rule<_>>()?;
    if !cursor.eat("->") {
        return Err("it returns nothing".into());
    }
    let gives = match cursor.rest().starts_with('(') {
        true => inside(cursor.group('(', ')')?),
        false => cursor.through('>')?.to_owned(),
    };
    let results = items(&gives).into_iter().map(|ty| without_attributes(ty).to_owned()).collect();
    Ok(Signature { parameters, results })
}

/// Returns a type without the dictionary of attributes after it.
fn without_attributes(ty: &str) -> &str {
    ty.split_once('{').map_or(ty, |(ty, _)| ty).trim()
}

/// Returns the items of a list, separated by commas that are in no bracket.
fn items(text: &str) -> Vec<&str> {
    let (mut items, mut depth, mut first, mut is_quoted, mut before) = (Vec::new(), 0, 0, false, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '"' if before != '\\' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                items.push(text[first..at].trim());
                first = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    items.push(text[first..].trim());
    items.retain(|item| !item.is_empty());
    items
}

/// Reads `tensor<8x128xf32>`.
fn tensor_type(text: &str) -> Rule<TensorType> {
    let fails = || {
        let known = DType::ALL.into_iter().filter(|&dtype| dtype != DType::C64);
        let known: Vec<&str> = known.map(DType::name).collect();
        format!("{text:?} is no tensor of static sizes: `tensor<8x128xf32>`, with elements {}", known.join(", "))
    };
    let inside = text.strip_prefix("tensor<").and_then(|rest| rest.strip_suffix('>')).ok_or_else(fails)?;
    let (dims, element) = inside.rsplit_once('x').unwrap_or(("", inside));
    let dims = dims.split('x').filter(|dim| !dim.is_empty()).map(|dim| dim.trim().parse::<usize>());
    let dims = dims.collect::<std::result::Result<Vec<_>, _>>().map_err(|_| fails())?;
    let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == element.trim() && *dtype != DType::C64);
    Ok(TensorType::new(dtype.ok_or_else(fails)?, dims))
}

/// Returns the text without comments, which end with their line.
fn without_comments(text: &str) -> String {
    let (mut kept, mut is_quoted, mut before) = (String::with_capacity(text.len()), false, ' ');
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if before != '\\' => is_quoted = !is_quoted,
            '/' if !is_quoted && chars.peek() == Some(&'/') => {
                chars.by_ref().take_while(|&c| c != '\n').for_each(drop);
                kept.push('\n');
                continue;
            }
            _ => {}
        }
        kept.push(c);
        before = c;
    }
    kept
}

/// Returns the text with other names for those `@symbols` that have one.
fn with_symbols(text: &str, new_name: impl Fn(&str) -> Option<String>) -> String {
    let (mut renamed, mut is_quoted, mut rest) = (String::with_capacity(text.len()), false, text);
    while let Some(at) = rest.find(['"', '@', '\\']) {
        let (before, from) = rest.split_at(at);
        renamed.push_str(before);
        let taken = match from.as_bytes()[0] {
            b'\\' => from.chars().take(2).map(char::len_utf8).sum(),
            b'@' if !is_quoted => {
                let name = word(&from[1..]);
                let new = new_name(name).unwrap_or_else(|| name.to_owned());
                renamed.push('@');
                renamed.push_str(&new);
                rest = &from[1 + name.len()..];
                continue;
            }
            b'"' => {
                is_quoted = !is_quoted;
                1
            }
            _ => 1,
        };
        renamed.push_str(&from[..taken]);
        rest = &from[taken..];
    }
    renamed.push_str(rest);
    renamed
}

/// Returns the start of the text that an error shows.
fn start(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    let end = line.char_indices().nth(40).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

/// Returns the name at the start of the text.
fn word(text: &str) -> &str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-');
    text.find(|c| !is_word(c)).map_or(text, |end| &text[..end])
}

/// A place in the text.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    /// Returns the text from here on, without leading space.
    fn rest(&mut self) -> &'t str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.trim_end()
    }

    /// Moves on over this text, and returns whether it was here.
    fn eat(&mut self, expected: &str) -> bool {
        let is_here = self.rest().starts_with(expected);
        self.at += if is_here { expected.len() } else { 0 };
        is_here
    }

    /// Moves on over a name.
    fn word(&mut self) -> &'t str {
        let word = word(self.rest());
        self.at += word.len();
        word
    }

    /// Moves on to the place after this bracket.
    fn through(&mut self, bracket: char) -> Rule<&'t str> {
        let rest = self.rest();
        let missing = || format!("expected a type, found {:?}", start(rest));
        let end = rest.find(bracket).ok_or_else(missing)? + bracket.len_utf8();
        self.at += end;
        Ok(&rest[..end])
    }

    /// Moves on over what these brackets enclose, and returns it with them.
    fn group(&mut self, open: char, close: char) -> Rule<&'t str> {
        let rest = self.rest();
        if !rest.starts_with(open) {
            return Err(format!("expected `{open}`, found {:?}", start(rest)));
        }
        let (mut depth, mut is_quoted, mut before) = (0, false, ' ');
        for (at, c) in rest.char_indices() {
            match c {
                '"' if before != '\\' => is_quoted = !is_quoted,
                _ if is_quoted => {}
                _ if c == open => depth += 1,
                _ if c == close => depth -= 1,
                _ => {}
            }
            before = c;
            if depth == 0 {
                self.at += at + c.len_utf8();
                return Ok(&rest[..at + c.len_utf8()]);
            }
        }
        Err(format!("a `{open}` has no `{close}`"))
    }
}

impl std::fmt::Display for StableHlo {
    /// Writes the signature: `@name(f32[8,128]) -> (f32[8,128])`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "@{}({}) -> ({})", self.name(), list(&self.operands), list(&self.results))
    }
}
