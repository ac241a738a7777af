//! Devices with a fault: one whose kernel of one op leaves out an element, or writes one too many; one that tells the host
//! more than it was asked for; and one that changes what it should only read.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use argon_kernels::op::{Gemm, RowMap};
use argon_kernels::{Access, DType, Device, DeviceError, Op, Tensor, Wrapper};

/// Which of the elements that an op changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spot {
    First,
    /// The last column of the first row.
    EndOfFirstRow,
    /// The last row of a tile of eight.
    EndOfTile,
    /// The last row of an expert's last tile, where that is not full; of routed products alone.
    TileTail,
    /// The first column of the last row.
    StartOfLastRow,
    Last,
    /// None of them: the word behind the last.
    Beyond,
}

/// Those that every output has.
pub const SPOTS: [Spot; 5] = [Spot::First, Spot::EndOfFirstRow, Spot::EndOfTile, Spot::StartOfLastRow, Spot::Last];

/// A fault as it was planted.
#[derive(Clone)]
pub struct Planted {
    /// The variant of the op.
    pub variant: &'static str,
    /// `[row, column]`.
    pub place: String,
}

/// The device, but for one element of one op's output.
pub struct Faulty<'d> {
    device: &'d dyn Device,
    op: &'static str,
    output: usize,
    spot: Spot,
    /// Where the last output was spoiled.
    planted: Mutex<RefCell<Option<Planted>>>,
}

impl<'d> Faulty<'d> {
    /// A fault in output number `output` of `op`, of those that a case compares.
    pub fn new(device: &'d dyn Device, op: &'static str, output: usize, spot: Spot) -> Self {
        Self { device, op, output, spot, planted: Mutex::default() }
    }

    /// Where it was planted; `None` if there was nothing to spoil.
    pub fn planted(&self) -> Option<Planted> {
        self.planted.lock().unwrap().borrow().clone()
    }

    fn bytes(&self, t: &Tensor) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; t.len() * t.dtype.bytes()];
        self.device.read(t, &mut bytes)?;
        Ok(bytes)
    }

    fn plant(&self, op: &Op, place: String) {
        self.planted.lock().unwrap().replace(Some(Planted { variant: op.variant(), place }));
    }

    /// The last row of the first tile that is not full.
    fn tile_tail(&self, op: &Op) -> Result<Option<usize>, DeviceError> {
        let Op::Gemm(Gemm { rows: RowMap::Gather(plan) | RowMap::Segments(plan), .. }) = op else { return Ok(None) };
        let words = |t: &Tensor| -> Result<Vec<u32>, DeviceError> {
            Ok(self.bytes(t)?.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
        };
        let used = words(&plan.meta)?[argon_plan::meta::TILES] as usize;
        let tiles = words(&plan.tiles.first(used))?;
        let tail = tiles.as_chunks().0.iter().find(|[_, _, valid]| (*valid as usize) < plan.shape.tile());
        Ok(tail.map(|[_, first, valid]| (first + valid - 1) as usize))
    }

    fn spoil(&self, op: &Op, t: &Tensor, before: &[u8]) -> Result<(), DeviceError> {
        let mut after = self.bytes(t)?;
        let size = t.dtype.bytes();
        let changed: Vec<usize> = (0..t.len()).filter(|&i| differ(t.dtype, before, &after, i)).collect();
        let (Some(&first), Some(&last)) = (changed.first(), changed.last()) else { return Ok(()) };
        let row = |i: &usize| i / t.width();
        let element = match self.spot {
            Spot::First => first,
            Spot::EndOfFirstRow => *changed.iter().rfind(|i| row(i) == row(&first)).unwrap(),
            Spot::EndOfTile => *changed.iter().rfind(|i| row(i) % 8 == 7).unwrap_or(&last),
            Spot::TileTail => {
                let Some(tail) = self.tile_tail(op)? else { return Ok(()) };
                *changed.iter().find(|i| row(i) == tail).unwrap()
            }
            Spot::StartOfLastRow => *changed.iter().find(|i| row(i) == row(&last)).unwrap(),
            Spot::Last => last,
            Spot::Beyond => {
                let word = Tensor::dense(t.buffer.clone(), DType::U32, 1, 1, t.buffer.bytes() / 4);
                let behind = (t.len() * size).div_ceil(4);
                self.device.write(&word.cols(behind..behind + 1), &[0; 4])?;
                self.plant(op, String::from("behind"));
                return Ok(());
            }
        };
        after[element * size..(element + 1) * size].copy_from_slice(&before[element * size..(element + 1) * size]);
        self.device.write(t, &after)?;
        let (r, g, c) = (element / t.width(), element / t.cols % t.groups, element % t.cols);
        let place = match (t.rows, t.groups) {
            (_, 2..) => format!("[{r}, {g}, {c}]"),
            (2.., _) => format!("[{r}, {c}]"),
            _ => format!("[{c}]"),
        };
        self.plant(op, place);
        Ok(())
    }
}

/// The op's name, and of a routed product which one it is.
fn name(op: &Op) -> &'static str {
    match op {
        Op::Gemm(Gemm { rows: RowMap::Gather(_), .. }) => "gemm by stok",
        Op::Gemm(Gemm { rows: RowMap::Segments(_), .. }) => "gemm of the plan",
        op => op.name(),
    }
}

/// Whether an op changed an element by more than rounding does.
fn differ(dtype: DType, before: &[u8], after: &[u8], i: usize) -> bool {
    let size = dtype.bytes();
    let [before, after] = [before, after].map(|bytes| &bytes[i * size..(i + 1) * size]);
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    match dtype {
        DType::F32 => (number(before) - number(after)).abs() > 0.01 * number(after).abs().max(1.0),
        _ => before != after,
    }
}

impl Wrapper for Faulty<'_> {
    fn inner(&self) -> &dyn Device {
        self.device
    }

    fn bytes_to_host(&self) -> u64 {
        0 // it looks at outputs itself while ops are enqueued, and that is not the fault
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        let accesses = op.accesses();
        let outputs = accesses.iter().filter(|(_, access)| *access == Access::Write).map(|(t, _)| *t);
        // What a case compares has words behind it that nobody should write.
        let guarded = |t: &Tensor| t.buffer.bytes() >= t.len() * t.dtype.bytes() + 64;
        let meant = |t: &&Tensor| name(op) == self.op && guarded(t);
        let target = outputs.clone().nth(self.output).filter(meant);
        let before = target.map(|t| self.bytes(t)).transpose()?;
        self.device.enqueue(op)?;
        match target.zip(before) {
            Some((t, before)) => self.spoil(op, t, &before),
            None => Ok(()),
        }
    }
}

/// The device, but that a word comes to the host with every op.
pub struct Talkative<'d> {
    device: &'d dyn Device,
    bytes: AtomicU64,
}

impl<'d> Talkative<'d> {
    pub fn new(device: &'d dyn Device) -> Self {
        Self { device, bytes: AtomicU64::new(0) }
    }
}

impl Wrapper for Talkative<'_> {
    fn inner(&self) -> &dyn Device {
        self.device
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.device.read(src, bytes)
    }

    fn bytes_to_host(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        self.bytes.fetch_add(4, Ordering::Relaxed);
        self.device.enqueue(op)
    }
}

/// The device, but that every op changes the first operand that it should only read.
pub struct Careless<'d> {
    device: &'d dyn Device,
    planted: AtomicBool,
}

impl<'d> Careless<'d> {
    pub fn new(device: &'d dyn Device) -> Self {
        Self { device, planted: AtomicBool::new(false) }
    }

    /// Whether there was an op with such an operand.
    pub fn planted(&self) -> bool {
        self.planted.load(Ordering::Relaxed)
    }
}

impl Wrapper for Careless<'_> {
    fn inner(&self) -> &dyn Device {
        self.device
    }

    fn bytes_to_host(&self) -> u64 {
        0 // it looks at an input itself, and that is not the fault
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        self.device.enqueue(op)?;
        let accesses = op.accesses();
        let Some((t, _)) = accesses.iter().find(|(t, access)| *access == Access::Read && !t.is_empty()) else {
            return Ok(());
        };
        self.planted.store(true, Ordering::Relaxed);
        let first = Tensor { rows: 1, groups: 1, cols: 1, ..(*t).clone() };
        let mut bytes = vec![0; t.dtype.bytes()];
        self.device.read(&first, &mut bytes)?;
        bytes[0] ^= 1;
        self.device.write(&first, &bytes)
    }
}
