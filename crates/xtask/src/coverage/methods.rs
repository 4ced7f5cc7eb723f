//! The methods of Burn's backend traits, and which of them the backend overrides.

use super::parsed;
use crate::sources::rust_files;
use anyhow::{Result, bail};
use proc_macro2::TokenTree;
use quote::ToTokens;
use std::collections::BTreeSet;
use std::path::Path;
use syn::{ImplItem, Item, ItemImpl, ItemMacro, ReturnType, Signature, TraitItem};

/// One method of a trait.
pub struct Method {
    /// Its name.
    pub name: String,
    /// The tensor kinds of its signature, in the order float, int, bool, quantized.
    pub kinds: Vec<&'static str>,
    /// Whether it gives a future: it hands values to the host.
    pub reads: bool,
    /// What Burn provides when a backend does not.
    pub default: Body,
}

/// A method's body in the trait.
#[derive(PartialEq, Eq)]
pub enum Body {
    /// None: a backend must have its own.
    Required,
    /// Composed of other methods.
    Composed,
    /// A panic.
    Panics,
}

/// The wanted traits in their order, with their methods in declaration order.
pub fn traits(sources: &Path, wanted: &[&str]) -> Result<Vec<(String, Vec<Method>)>> {
    let mut found = Vec::new();
    for path in rust_files(sources)? {
        for item in parsed(&path)?.items {
            if let Item::Trait(item) = item
                && wanted.contains(&item.ident.to_string().as_str())
            {
                found.push((item.ident.to_string(), item.items.iter().filter_map(method).collect::<Vec<_>>()));
            }
        }
    }
    found.sort_by_key(|(name, _)| wanted.iter().position(|known| known == name));
    if found.len() != wanted.len() || found.iter().any(|(_, methods)| methods.is_empty()) {
        bail!("found {} of {} traits in {}", found.len(), wanted.len(), sources.display());
    }
    Ok(found)
}

fn method(item: &TraitItem) -> Option<Method> {
    let TraitItem::Fn(function) = item else { return None };
    let body = function.default.as_ref().map(|body| body.to_token_stream().to_string());
    // The one statement of a body that only panics.
    let panics = |body: &String| {
        let body = body.trim_start_matches(['{', ' ']);
        ["unimplemented !", "unreachable !", "todo !"].iter().any(|panic| body.starts_with(panic))
    };
    let default = match body {
        None => Body::Required,
        Some(body) if panics(&body) => Body::Panics,
        Some(_) => Body::Composed,
    };
    Some(Method {
        name: function.sig.ident.to_string(),
        kinds: kinds(&function.sig),
        reads: reads(&function.sig),
        default,
    })
}

fn reads(signature: &Signature) -> bool {
    let ReturnType::Type(_, ty) = &signature.output else { return false };
    signature.asyncness.is_some() || ty.to_token_stream().to_string().contains("Future")
}

/// The tensor kinds that a signature names, by the aliases that Burn uses for them and for what holds them.
fn kinds(signature: &Signature) -> Vec<&'static str> {
    let text = signature.to_token_stream().to_string();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let known: [(&str, &[&str]); 4] = [
        ("float", &["FloatTensor", "FloatDType", "TransactionPrimitive", "TensorMetadata", "BatchNormTrain"]),
        ("int", &["IntTensor", "IntDType", "MaxPool1dWithIndices", "MaxPool2dWithIndices", "TransactionPrimitive"]),
        ("bool", &["BoolTensor", "BoolDType", "TransactionPrimitive"]),
        ("quantized", &["QuantizedTensor", "TransactionPrimitive"]),
    ];
    let mut kinds: Vec<&str> = known
        .iter()
        .filter(|(_, names)| names.iter().any(|name| words.contains(name)))
        .map(|(kind, _)| *kind)
        .collect();
    if kinds == ["int"] && text.contains("WithIndices") {
        kinds.insert(0, "float");
    }
    kinds
}

/// The methods that the backend's own impls of the traits define, and those that a macro named `…_methods` has for an impl.
pub fn overridden(sources: &Path, wanted: &[&str]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for path in rust_files(sources)? {
        for item in parsed(&path)?.items {
            match item {
                Item::Impl(item) if is_of_traits(&item, wanted) => found.extend(names(&item)),
                Item::Macro(definition) if is_of_methods(&definition) => found.extend(of_macro(&definition)?),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn is_of_methods(definition: &ItemMacro) -> bool {
    definition.ident.as_ref().is_some_and(|name| name.to_string().ends_with("_methods"))
}

fn is_of_traits(item: &ItemImpl, wanted: &[&str]) -> bool {
    let implemented = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
    implemented.is_some_and(|name| wanted.contains(&name.ident.to_string().as_str()))
}

fn names(item: &ItemImpl) -> Vec<String> {
    let name = |item: &ImplItem| match item {
        ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
        _ => None,
    };
    item.items.iter().filter_map(name).collect()
}

/// The methods of a macro with one rule, `() => { … }`. Its paths begin with `$crate`.
fn of_macro(definition: &ItemMacro) -> Result<Vec<String>> {
    let mut groups = definition.mac.tokens.clone().into_iter().filter_map(|token| match token {
        TokenTree::Group(group) => Some(group.stream().to_string()),
        _ => None,
    });
    let body = groups.nth(1).unwrap_or_default().replace('$', "");
    Ok(names(&syn::parse_str(&format!("impl Version {{ {body} }}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Method {
        method(&syn::parse_str(text).unwrap()).unwrap()
    }

    #[test]
    fn defaults_are_told_apart() {
        assert!(parse("fn f(x: FloatTensor<B>);").default == Body::Required);
        assert!(parse("fn f(x: FloatTensor<B>) { B::g(x) }").default == Body::Composed);
        assert!(parse("fn f(x: FloatTensor<B>) { unimplemented!(\"no\") }").default == Body::Panics);
    }

    #[test]
    fn signatures_say_what_they_hold_and_what_they_read() {
        let read = parse("fn f(x: BoolTensor<B>) -> impl Future<Output = TensorData> + Send;");
        assert!(read.reads && read.kinds == ["bool"]);
        let pool = parse("fn f(x: FloatTensor<B>) -> MaxPool2dWithIndices<B>;");
        assert!(!pool.reads && pool.kinds == ["float", "int"]);
        assert!(parse("fn f(x: &IntTensor<B>) -> usize;").kinds == ["int"]);
    }

    #[test]
    fn the_methods_of_a_macro_are_found() {
        let text = "macro_rules! q_methods { () => { fn f(x: X) -> $crate::Y { $crate::g(x) } async fn h() {} }; }";
        let Item::Macro(definition) = syn::parse_str(text).unwrap() else { panic!("no macro") };
        assert_eq!(of_macro(&definition).unwrap(), ["f", "h"]);
    }
}
