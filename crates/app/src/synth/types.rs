//! How the weights of a synthetic file are stored: a format for each role.

use argon_gguf::Format;

use super::shape::Preset;
use super::weights;
use crate::failure::Failure;

/// What a weight is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Gate and up of the routed experts.
    GateUp,
    /// Down of the routed experts.
    Down,
    /// Every other product: attention, DeltaNet, shared experts, hyper-connections.
    Dense,
    /// The embedding of tokens.
    Embed,
    /// The output.
    Output,
    /// The table of n-gram embeddings.
    Ngrams,
    /// Too small or too delicate for anything but f32: norms, routers, convolutions, indexers.
    Plain,
}

/// The roles that `--types` can name.
const NAMED: [(&str, Role); 6] = [
    ("gate_up", Role::GateUp),
    ("down", Role::Down),
    ("dense", Role::Dense),
    ("embed", Role::Embed),
    ("output", Role::Output),
    ("ngrams", Role::Ngrams),
];

/// The format of each role, in the order of [`NAMED`].
#[derive(Clone, Debug, PartialEq)]
pub struct Types([Format; NAMED.len()]);

impl Types {
    /// Those of released files, or close to them.
    pub fn of(preset: Preset) -> Self {
        use Format::{IQ2_XS, IQ4_NL, Q4_K, Q6_K, Q8_0};
        match preset {
            Preset::Qwen38FlashNext | Preset::MoeLayer | Preset::Tiny => {
                Self([IQ2_XS, IQ4_NL, Q8_0, Q8_0, Q6_K, IQ4_NL])
            }
            _ => Self([Q4_K, Q6_K, Q4_K, Q4_K, Q6_K, IQ4_NL]),
        }
    }

    /// Changes what `gate_up=iq2_xs,down=iq4_nl` and the like name.
    ///
    /// # Errors
    /// An input failure that names the entry.
    pub fn change(&mut self, list: &[String]) -> Result<(), Failure> {
        for entry in list {
            let refuse = |what: String| Failure::input(format_args!("--types {entry}: {what}"));
            let (role, format) = entry.split_once('=').ok_or_else(|| refuse("not of the form ROLE=TYPE".into()))?;
            let index = NAMED.iter().position(|(name, _)| *name == role).ok_or_else(|| {
                let names = NAMED.map(|(name, _)| name).join(", ");
                refuse(format!("no role {role:?} (roles: {names})"))
            })?;
            self.0[index] = Format::from_name(format)
                .filter(|format| weights::can_make(*format))
                .ok_or_else(|| refuse(format!("no type {format:?} (types: {})", all_types())))?;
        }
        Ok(())
    }

    /// The format asked for.
    pub fn asked(&self, role: Role) -> Format {
        NAMED.iter().position(|(_, named)| *named == role).map_or(Format::F32, |index| self.0[index])
    }

    /// The format of a weight with rows of `cols` columns.
    ///
    /// A dense weight whose rows are no multiple of the format's block is stored in one of smaller blocks, as
    /// llama-quantize does.
    ///
    /// # Errors
    /// An input failure that names the tensor, if its rows are no multiple of the block.
    pub fn format(&self, role: Role, tensor: &str, cols: usize) -> Result<Format, Failure> {
        let format = self.asked(role);
        if cols.is_multiple_of(format.block_len()) {
            return Ok(format);
        }
        if role == Role::Dense {
            return Ok(if cols.is_multiple_of(Format::Q8_0.block_len()) { Format::Q8_0 } else { Format::F32 });
        }
        let name = NAMED.iter().find(|(_, named)| *named == role).map_or("", |(name, _)| name);
        let block = format.block_len();
        Err(Failure::input(format_args!(
            "--types {name}={format}: the rows of {tensor} have {cols} weights, no multiple of the {block} in a block"
        )))
    }
}

fn all_types() -> String {
    let names = Format::ALL.iter().filter(|format| weights::can_make(**format)).map(|format| format.name());
    names.collect::<Vec<_>>().join(", ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(list: &str) -> Result<Types, String> {
        let mut types = Types::of(Preset::Tiny);
        let list: Vec<String> = list.split(',').map(str::to_owned).collect();
        match types.change(&list) {
            Ok(()) => Ok(types),
            Err(Failure::Input(error)) => Err(error.to_string()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn roles_change_by_name() {
        let types = changed("gate_up=q2_k,output=F16").unwrap();
        assert_eq!(types.format(Role::GateUp, "t", 256).unwrap(), Format::Q2_K);
        assert_eq!(types.format(Role::Output, "t", 7).unwrap(), Format::F16);
        assert_eq!(types.format(Role::Down, "t", 64).unwrap(), Format::IQ4_NL);
        assert_eq!(types.format(Role::Plain, "t", 7).unwrap(), Format::F32);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(changed("up").unwrap_err(), "--types up: not of the form ROLE=TYPE");
        assert!(changed("up=q8_0").unwrap_err().starts_with("--types up=q8_0: no role \"up\" (roles: gate_up, down,"));
        assert!(changed("down=q9").unwrap_err().starts_with("--types down=q9: no type \"q9\" (types: f32, f16, q4_0,"));
        assert!(changed("down=i32").is_err());
    }

    #[test]
    fn rows_that_do_not_fit_are_refused_or_stored_otherwise() {
        let types = changed("down=q4_k,dense=q4_k").unwrap();
        let Err(Failure::Input(error)) = types.format(Role::Down, "blk.0.ffn_down_exps.weight", 640) else { panic!() };
        let expected = "--types down=Q4_K: the rows of blk.0.ffn_down_exps.weight have 640 weights, no multiple of \
                        the 256 in a block";
        assert_eq!(error.to_string(), expected);
        assert_eq!(types.format(Role::Dense, "t", 320).unwrap(), Format::Q8_0);
        assert_eq!(types.format(Role::Dense, "t", 512).unwrap(), Format::Q4_K);
        assert_eq!(types.format(Role::Dense, "t", 5).unwrap(), Format::F32);
    }
}
