//! The macro that generates [`TpuOptions`](super::TpuOptions) from a table.

/// Each row is `docs method(argument: type): field type = default, field from argument;`. An option that the
/// environment overrides also has `"VARIABLE": parser, "values";`. A parser returns the method's argument.
macro_rules! options {
    (
        $(#[$struct_doc:meta])*
        pub struct TpuOptions {
            $($(#[$extra_doc:meta])* $extra:ident: $extra_ty:ty = $extra_default:expr,)*
        }
        beside options { $($beside:literal: $what:literal, $beside_default:literal, $beside_values:literal;)* }
        $(
            $(#[$doc:meta])*
            $name:ident($argument:ident: $argument_ty:ty): $ty:ty = $default:expr, $set:expr;
            $($variable:literal: $parse:expr, $values:literal;)?
        )*
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Debug)]
        pub struct TpuOptions {
            $(pub(crate) $name: $ty,)*
            $($(#[$extra_doc])* pub(crate) $extra: $extra_ty,)*
        }

        impl TpuOptions {
            /// Every environment variable that burn-tpu reads. An empty value counts as unset.
            ///
            /// | variable | overrides | default | values |
            /// |---|---|---|---|
            $(#[doc = concat!("| `", $beside, "` | ", $what, " | ", $beside_default, " | ", $beside_values, " |")])*
            $($(
                #[doc = concat!(
                    "| `", $variable, "` | [`TpuOptions::", stringify!($name), "`] | `", stringify!($default), "` | ",
                    $values, " |"
                )]
            )?)*
            pub const VARIABLES: &[&str] = &[$($beside,)* $($($variable,)?)*];

            fn table_defaults() -> Self {
                Self { $($name: $default,)* $($extra: $extra_default,)* }
            }

            $(
                $(#[$doc])*
                pub fn $name(mut self, $argument: $argument_ty) -> Self {
                    self.$name = $set;
                    self
                }
            )*

            /// Returns these options with the environment's overrides.
            ///
            /// # Errors
            /// [`TpuError::Option`] with the name of the variable and the rule for its value.
            pub fn with_environment(self) -> Result<Self> {
                let options = self;
                $($(
                    let options = match parse::read($variable, $parse)? {
                        Some(value) => options.$name(value),
                        None => options,
                    };
                )?)*
                Ok(options)
            }
        }
    };
}
