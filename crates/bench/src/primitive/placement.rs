//! Where a partner runs: `cpus=same` or `cpus=different`.

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Refusal, Setting};
use crate::evidence::Sharing;
use crate::partner::Partner;

/// The processor of the partner that an id asks for; this process's own where it does not say.
pub(crate) fn partner_cpu(id: &PrimitiveId, setting: &Setting) -> Result<usize, Refusal> {
    match id.word(Key::Cpus) {
        "different" => setting.other_cpu.ok_or_else(|| {
            Refusal::Unavailable("this process may use one processor only, and it needs two".to_owned())
        }),
        _ => Ok(setting.cpu),
    }
}

/// Who is meant to run when a partner does on this processor.
pub(crate) fn sharing(setting: &Setting, cpu: usize, partner: &Partner) -> Sharing {
    if cpu == setting.cpu {
        Sharing::OneCpu { partners: vec![partner.pid()] }
    } else {
        Sharing::TwoCpus { partner: partner.pid(), cpu }
    }
}
