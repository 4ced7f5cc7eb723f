//! Signatures as text: what rustdoc describes of types, bounds and functions, written as in Rust.

use serde_json::Value;

/// Returns a type as it is written. A form that is not known here is written as rustdoc describes it.
pub fn type_name(ty: &Value) -> String {
    let Some((form, of)) = ty.as_object().and_then(|ty| ty.iter().next()) else {
        return if ty == "infer" { "_".into() } else { ty.to_string() };
    };
    match form.as_str() {
        "primitive" | "generic" => text(of).into(),
        "resolved_path" => trait_name(of),
        "borrowed_ref" => format!("&{}{}{}", lifetime(of), mutable(of), type_name(&of["type"])),
        "tuple" => format!("({})", joined(of, type_name)),
        "slice" => format!("[{}]", type_name(of)),
        "array" => format!("[{}; {}]", type_name(&of["type"]), text(&of["len"])),
        "impl_trait" => bounds("impl ", of),
        "dyn_trait" => {
            let traits = list(&of["traits"]).iter().map(|bound| trait_name(&bound["trait"]));
            format!("dyn {}", traits.chain(of["lifetime"].as_str().map(str::to_owned)).collect::<Vec<_>>().join(" + "))
        }
        "qualified_path" => format!("{}::{}{}", type_name(&of["self_type"]), text(&of["name"]), arguments(&of["args"])),
        "function_pointer" => format!("fn({}){}", inputs(&of["sig"]), output(&of["sig"])),
        _ => ty.to_string(),
    }
}

/// Returns the path of a trait or a type, with its arguments.
pub fn trait_name(path: &Value) -> String {
    format!("{}{}", text(&path["path"]), arguments(&path["args"]))
}

/// Returns bounds after `before`, joined by `+`; nothing if there are none.
pub fn bounds(before: &str, bounds: &Value) -> String {
    let bounds: Vec<String> = list(bounds).iter().map(bound).collect();
    if bounds.is_empty() { String::new() } else { format!("{before}{}", bounds.join(" + ")) }
}

fn bound(bound: &Value) -> String {
    let of = &bound["trait_bound"];
    match of["modifier"].as_str() {
        Some("maybe") => format!("?{}", trait_name(&of["trait"])),
        Some(_) => trait_name(&of["trait"]),
        None => bound["outlives"].as_str().map_or_else(|| bound.to_string(), str::to_owned),
    }
}

/// Returns the parameters and the return type of a function, with its generic parameters and their conditions.
pub fn function(inner: &Value) -> String {
    let (parameters, conditions) = generics(&inner["generics"]);
    format!("{parameters}({}){}{conditions}", inputs(&inner["sig"]), output(&inner["sig"]))
}

/// Returns generic parameters, `<T: Clone>`, and their conditions, ` where U: Clone`; each is empty if there are none.
pub fn generics(generics: &Value) -> (String, String) {
    let parameters: Vec<String> = list(&generics["params"]).iter().filter_map(parameter).collect();
    let conditions: Vec<String> = list(&generics["where_predicates"]).iter().map(condition).collect();
    let before = |before: &str, parts: Vec<String>, after: &str| {
        if parts.is_empty() { String::new() } else { format!("{before}{}{after}", parts.join(", ")) }
    };
    (before("<", parameters, ">"), before(" where ", conditions, ""))
}

/// Returns a generic parameter; `None` for one that stands for an `impl Trait` among the arguments.
fn parameter(parameter: &Value) -> Option<String> {
    let (name, kind) = (text(&parameter["name"]), &parameter["kind"]);
    if let Some(ty) = kind.get("type") {
        let default = ty["default"].as_object().map(|_| format!(" = {}", type_name(&ty["default"])));
        return (ty["is_synthetic"] != true)
            .then(|| format!("{name}{}{}", bounds(": ", &ty["bounds"]), default.unwrap_or_default()));
    }
    Some(match kind.get("const") {
        Some(of) => format!("const {name}: {}", type_name(&of["type"])),
        None => name.into(),
    })
}

fn condition(condition: &Value) -> String {
    match condition.get("bound_predicate") {
        Some(of) => format!("{}{}", type_name(&of["type"]), bounds(": ", &of["bounds"])),
        None => condition.to_string(),
    }
}

fn inputs(signature: &Value) -> String {
    joined(&signature["inputs"], |input| match (text(&input[0]), type_name(&input[1]).as_str()) {
        ("self", "Self") => "self".into(),
        ("self", "&Self") => "&self".into(),
        ("self", "&mut Self") => "&mut self".into(),
        ("" | "_", ty) => ty.into(),
        (name, ty) => format!("{name}: {ty}"),
    })
}

fn output(signature: &Value) -> String {
    if signature["output"].is_null() { String::new() } else { format!(" -> {}", type_name(&signature["output"])) }
}

/// Returns the arguments of a path: `<T, N = U>`, or `(A) -> B` for the traits of closures.
fn arguments(arguments: &Value) -> String {
    if let Some(of) = arguments.get("parenthesized") {
        return format!("({}){}", joined(&of["inputs"], type_name), output(of));
    }
    let of = &arguments["angle_bracketed"];
    let plain = list(&of["args"]).iter().map(argument);
    let parts: Vec<String> = plain.chain(list(&of["constraints"]).iter().map(constraint)).collect();
    if parts.is_empty() { String::new() } else { format!("<{}>", parts.join(", ")) }
}

fn argument(argument: &Value) -> String {
    match argument.as_object().and_then(|argument| argument.iter().next()) {
        Some((kind, ty)) if kind == "type" => type_name(ty),
        Some((kind, name)) if kind == "lifetime" => text(name).into(),
        Some((_, value)) => text(&value["expr"]).into(),
        None => "_".into(),
    }
}

fn constraint(constraint: &Value) -> String {
    let (name, binding) = (text(&constraint["name"]), &constraint["binding"]);
    match binding.get("equality") {
        Some(of) => format!("{name} = {}", argument(of)),
        None => format!("{name}{}", bounds(": ", &binding["constraint"])),
    }
}

fn lifetime(reference: &Value) -> String {
    reference["lifetime"].as_str().map_or_else(String::new, |name| format!("{name} "))
}

fn mutable(reference: &Value) -> &'static str {
    if reference["is_mutable"] == true { "mut " } else { "" }
}

fn joined(values: &Value, write: impl Fn(&Value) -> String) -> String {
    list(values).iter().map(write).collect::<Vec<_>>().join(", ")
}

fn list(values: &Value) -> &[Value] {
    values.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(name: &str, args: Value) -> Value {
        json!({ "resolved_path": { "path": name, "args": args } })
    }

    #[test]
    fn types_are_written_as_in_rust() {
        let number = json!({ "primitive": "u8" });
        let arguments = json!({ "angle_bracketed": { "args": [{ "type": number }], "constraints": [] } });
        assert_eq!(type_name(&path("Vec", arguments)), "Vec<u8>");
        assert_eq!(type_name(&json!({ "array": { "type": number, "len": "3" } })), "[u8; 3]");
        assert_eq!(type_name(&json!({ "tuple": [number, { "slice": number }] })), "(u8, [u8])");
        let bytes = json!({ "borrowed_ref": { "lifetime": "'a", "is_mutable": true, "type": { "slice": number } } });
        assert_eq!(type_name(&bytes), "&'a mut [u8]");
        let item = json!({ "name": "Item", "args": null, "binding": { "equality": { "type": number } } });
        let arguments = json!({ "angle_bracketed": { "args": [], "constraints": [item] } });
        let bound = |path: &str, args: Value| json!({ "trait_bound": { "trait": { "path": path, "args": args }, "modifier": "none" } });
        assert_eq!(type_name(&json!({ "impl_trait": [bound("Iterator", arguments)] })), "impl Iterator<Item = u8>");
        let closure = json!({ "parenthesized": { "inputs": [number], "output": number } });
        assert_eq!(type_name(&json!({ "impl_trait": [bound("Fn", closure)] })), "impl Fn(u8) -> u8");
    }

    #[test]
    fn a_method_has_its_receiver_and_no_parameter_for_an_impl_trait() {
        let of_self =
            json!({ "borrowed_ref": { "lifetime": null, "is_mutable": false, "type": { "generic": "Self" } } });
        let parameter = |name: &str, synthetic: bool| json!({ "name": name, "kind": { "type": { "bounds": [], "default": null, "is_synthetic": synthetic } } });
        let inner = json!({
            "sig": { "inputs": [["self", of_self], ["x", { "generic": "T" }]], "output": null },
            "generics": { "params": [parameter("T", false), parameter("impl Copy", true)], "where_predicates": [] },
        });
        assert_eq!(function(&inner), "<T>(&self, x: T)");
    }
}
