//! Spools: raw blocks of the records of one CPU before their conversion to a segment.
//!
//! A file is a header followed by blocks. A block is a header with the number of records and a checksum,
//! followed by records in the layout of [`super::layout`]. A block is appended by one write, so a recorder
//! that dies leaves at most one incomplete block, at the end.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Write},
    path::Path,
};

use super::{
    checksum,
    layout::{RECORD_BYTES, RECORD_BYTES_1, Stored},
};

const MAGIC: [u8; 8] = *b"ASSAYSP2";
/// Begins a spool of version 1, whose records are shorter.
const MAGIC_1: [u8; 8] = *b"ASSAYSP1";
const BLOCK_HEADER_BYTES: usize = 16;
/// A block is written when it has this many records: 2048 x 176 B = 352 KiB, large enough that the cost of
/// the system call is negligible compared to the copy, small enough that every CPU can hold one.
pub(crate) const BLOCK_RECORDS: usize = 2048;

pub(crate) fn file_name(cpu: u16, part: u32) -> String {
    format!("cpu{cpu}-{part:06}.spool")
}

/// Appends to one spool.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    file: File,
    /// Space for the block header, then records.
    block: Vec<u8>,
    /// Records in blocks already written.
    pub written: u64,
}

impl SpoolWriter {
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(&MAGIC)?;
        let mut block = Vec::with_capacity(BLOCK_HEADER_BYTES + BLOCK_RECORDS * RECORD_BYTES);
        block.resize(BLOCK_HEADER_BYTES, 0);
        Ok(Self { file, block, written: 0 })
    }

    pub fn append(&mut self, record: &[u8; RECORD_BYTES]) -> io::Result<()> {
        self.block.extend_from_slice(record);
        if self.block.len() < BLOCK_HEADER_BYTES + BLOCK_RECORDS * RECORD_BYTES {
            return Ok(());
        }
        self.flush()
    }

    pub fn flush(&mut self) -> io::Result<()> {
        let records = (self.block.len() - BLOCK_HEADER_BYTES) / RECORD_BYTES;
        if records == 0 {
            return Ok(());
        }
        let sum = checksum::of_bytes(&self.block[BLOCK_HEADER_BYTES..]);
        self.block[..8].copy_from_slice(&(records as u64).to_le_bytes());
        self.block[8..BLOCK_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all(&self.block)?;
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.written += records as u64;
        Ok(())
    }
}

/// A spool that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not start with the header of a spool")]
    Magic,
    #[error("block {0} is damaged")]
    Block(u64),
}

/// Reads one spool, block by block.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    source: BufReader<File>,
    record_bytes: usize,
    block: Vec<u8>,
    blocks: u64,
}

impl SpoolReader {
    /// Opens a spool; `None` if its recorder died before it wrote the header.
    pub fn open(path: &Path) -> Result<Option<Self>, SpoolError> {
        let mut source = BufReader::with_capacity(1 << 18, File::open(path)?);
        let mut magic = [0; MAGIC.len()];
        let filled = checksum::fill(&mut source, &mut magic)?;
        if filled < MAGIC.len() && [MAGIC, MAGIC_1].iter().any(|known| known.starts_with(&magic[..filled])) {
            return Ok(None);
        }
        let record_bytes = match magic {
            MAGIC => RECORD_BYTES,
            MAGIC_1 => RECORD_BYTES_1,
            _ => return Err(SpoolError::Magic),
        };
        Ok(Some(Self { source, record_bytes, block: Vec::new(), blocks: 0 }))
    }

    /// Replaces `records` with the next block; returns false at the end or at an incomplete last block.
    pub fn next_block(&mut self, records: &mut Vec<Stored>) -> Result<bool, SpoolError> {
        records.clear();
        let mut header = [0; BLOCK_HEADER_BYTES];
        if checksum::fill(&mut self.source, &mut header)? < header.len() {
            return Ok(false);
        }
        let (count, sum) = header.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let count = usize::try_from(word(count)).unwrap_or(usize::MAX);
        if count == 0 || count > BLOCK_RECORDS {
            return Err(SpoolError::Block(self.blocks));
        }
        self.block.resize(count * self.record_bytes, 0);
        if checksum::fill(&mut self.source, &mut self.block)? < self.block.len() {
            return Ok(false);
        }
        if checksum::of_bytes(&self.block) != word(sum) {
            return Err(SpoolError::Block(self.blocks));
        }
        self.blocks += 1;
        records.extend(self.block.chunks_exact(self.record_bytes).map(|stored| {
            let mut record = [0; RECORD_BYTES];
            record[..self.record_bytes].copy_from_slice(stored);
            Stored::from_bytes(&record)
        }));
        Ok(true)
    }
}
