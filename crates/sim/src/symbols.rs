//! The symbols of a kernel, as it lists them in `/proc/kallsyms`.

use std::collections::BTreeMap;

/// Addresses of the code of a kernel, by name. Several functions can have one name.
pub type Symbols = BTreeMap<String, Vec<u64>>;

/// Reads lines of `ADDRESS TYPE NAME`, and keeps the code that belongs to the kernel itself: lines of modules
/// have a fourth word. Other lines are ignored; a kernel without symbols lists none, or only addresses of 0.
#[must_use]
pub fn parse(kallsyms: &str) -> Symbols {
    let mut symbols = Symbols::new();
    for line in kallsyms.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [address, "t" | "T" | "w" | "W", name] = words[..] else { continue };
        match u64::from_str_radix(address, 16) {
            Ok(address) if address != 0 => {
                symbols.entry(name.to_owned()).or_default().push(address);
            }
            _ => {}
        }
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_kernel_itself_is_kept() {
        let symbols = parse(
            "ffffffff81000000 T _stext\nffffffff81000010 t twice\nffffffff81000020 t twice\n\
             0000000000030000 A pcpu_hot\nffffffff82000000 D data\nffffffffc0000000 t f\t[nvme]\n\
             0000000000000000 T hidden\nnonsense\n",
        );
        let expected: [(_, &[u64]); 2] = [
            ("_stext", &[0xffff_ffff_8100_0000]),
            ("twice", &[0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020]),
        ];
        assert_eq!(symbols, expected.map(|(name, addresses)| (name.to_owned(), addresses.to_vec())).into());
    }
}
