// The product by cooperative matrices: f16 operands, f32 sums, FRAGMENT x FRAGMENT at a time.
//
// A workgroup makes TILE_ROWS rows times SLOTS columns, DEPTH columns of k at a time. Each of its subgroups has STRIP weight
// rows of its own and multiplies all TILE_ROWS rows by them, so that nobody waits for anybody between the first barrier and
// the end. Bytes of weight rows come into `raw` a CHUNK of columns at a time, word after word, so that neighbours read
// neighbours; the words of the next chunk wait in registers meanwhile. A thread decodes sixteen weights of a step out of `raw`
// into `w_tile`; the input comes from memory as it is: `half` has it in fragments (act.wgsl), zeros up to a multiple of DEPTH
// columns, and a step's are loaded before its weights are decoded. docs/wgpu.md has what each of these was seen to be worth.
//
// Nothing in a step branches or asks whether a row or a column is there. What is not has an address that is, and its sums are
// not stored. What is loaded is bound as writable, although nothing writes it: drivers move loads of memory that cannot change
// down to their use, behind what was to pass their time.
//
// Sums go through shared memory to the epilogue, since where a matrix keeps an element is the driver's secret. With SWIGLU
// half of each FRAGMENT columns are gate's and half are up's, so that a fragment holds both factors of an output.
//
// Lines that name a range in braces are repeated as `Tile::unroll` says (shader.rs): WGSL cannot ask for a loop to be unrolled,
// and sums must not leave the registers.

@group(0) @binding(1) var<storage, read_write> half: array<Unit>; // fragments, row after row of them
@group(0) @binding(2) var<storage, read_write> w_words: array<u32>;
@group(0) @binding(3) var<storage, read_write> up_words: array<u32>;
@group(0) @binding(10) var<storage, read_write> exponents: array<i32>;  // of rows of half: x is half * 2^exponent

const PITCH = PART + 8u;               // f16 from row to row of a tile, which spreads rows over the banks
const WARPS = SLOTS / STRIP;           // subgroups
const THREADS = WARPS * SUBGROUP;
const RAW_WORDS = (CHUNK_BYTES + 6u) / 4u; // that a chunk of a row touches, at most
const RAW_PITCH = (RAW_WORDS + 1u) | 1u; // odd: spread over the banks; decoders load one word more
const FRAGMENT_SIZE = FRAGMENT * FRAGMENT;
const STRIP_ROWS = STRIP / select(1u, 2u, SWIGLU); // of one weight

var<workgroup> w_tile: array<Unit, SLOTS * PITCH / UNIT>;
var<workgroup> raw: array<u32, SLOTS * RAW_PITCH>;
var<workgroup> products: array<f32, WARPS * FRAGMENT_SIZE>;
var<workgroup> slot_bytes: array<u32, SLOTS>; // where weight rows begin
var<workgroup> powers: array<f32, TILE_ROWS>;

fn weight_word(i: u32) -> u32 {
    return raw[i];
}

// The slot of a subgroup's row of a weight: with SWIGLU half a fragment of gate's rows, then half of up's.
fn slot_of(row: u32, second: u32) -> u32 {
    if SWIGLU {
        return row / (FRAGMENT / 2u) * FRAGMENT + second * (FRAGMENT / 2u) + row % (FRAGMENT / 2u);
    }
    return row;
}

// The words of a chunk of a subgroup's rows of a weight, one after the other, are the items of a copy. Threads without an item
// of their own repeat the last.
fn item_of(i: u32) -> u32 {
    return min(i, STRIP_ROWS * RAW_WORDS - 1u);
}

fn raw_slot(item: u32, second: u32) -> u32 {
    return slot_of(item / RAW_WORDS, second);
}

// Where an item is among the `words` of its buffer; the last chunk of the last row may be a part.
fn word_of(item: u32, row: u32, chunk: u32, words: u32) -> u32 {
    return min((row + chunk * CHUNK_BYTES) / 4u + item % RAW_WORDS, words - 1u);
}

fn put_raw(item: u32, first_slot: u32, second: u32, word: u32) {
    raw[(first_slot + raw_slot(item, second)) * RAW_PITCH + item % RAW_WORDS] = word;
}

fn put_w(to: u32, first: EightHalves, second: EightHalves) {
    w_tile[to + {v}u] = first.a; w_tile[to + {v}u + 1u] = first.b; w_tile[to + {v}u + 2u] = second.a; w_tile[to + {v}u + 3u] = second.b;
    w_tile[to + {f}u] = first.a[{f}u];
    w_tile[to + {f}u + 4u] = first.b[{f}u];
    w_tile[to + {f}u + 8u] = second.a[{f}u];
    w_tile[to + {f}u + 12u] = second.b[{f}u];
}

// Zeros behind a row's end; only plain numbers end within eight.
fn within(eight: EightHalves, column: u32) -> EightHalves {
    var kept = eight;
    let left = max(p.k, column) - column;
    if WEIGHT_BLOCK == 1u {
        kept.a = select(vec4<f16>(), eight.a, vec4(left) > vec4(0u, 1u, 2u, 3u));
        kept.b = select(vec4<f16>(), eight.b, vec4(left) > vec4(4u, 5u, 6u, 7u));
    } else if DEPTH > WEIGHT_BLOCK && left == 0u {
        kept = EightHalves();
    }
    return kept;
}

// Stores a thread's share of a fragment of products: row `first` of the tile and up, FRAGMENT columns from slot `strip`.
fn finish_fragment(found: vec3<u32>, n0: u32, first: u32, strip: u32, region: u32, lane: u32) {
    if SWIGLU {
        let c = lane % (FRAGMENT / 2u);
        let n = n0 + strip / 2u + c;
        for (var i = lane / (FRAGMENT / 2u); i < FRAGMENT; i += SUBGROUP / (FRAGMENT / 2u)) {
            let r = first + i;
            if r < found.z && n < p.n {
                let gate = products[region + i * FRAGMENT + c] * powers[r];
                let up = products[region + i * FRAGMENT + FRAGMENT / 2u + c] * powers[r];
                out[at(p.out, found.y + r, 0u) + n] = silu(gate) * up;
            }
        }
        return;
    }
    let n = n0 + strip + lane % FRAGMENT;
    if !is_here(p.w, found.x, n) {
        return;
    }
    for (var i = lane / FRAGMENT; i < FRAGMENT; i += SUBGROUP / FRAGMENT) {
        let r = first + i;
        if r < found.z {
            finish(found.y + r, n, products[region + i * FRAGMENT + lane % FRAGMENT] * powers[r]);
        }
    }
}

@compute @workgroup_size(THREADS)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups);
    find_work(number, thread);
    let found = workgroupUniformLoad(&work);
    if found.z == 0u {
        return;
    }
    prepare(thread, THREADS);
    let half_row = number / p.column_blocks * TILE_ROWS;
    let n0 = (p.first_block + number % p.column_blocks) * BLOCK_COLUMNS;
    for (var i = thread; i < TILE_ROWS; i += THREADS) {
        powers[i] = power_of_two(exponents[half_row + i]);
    }
    for (var i = thread; i < SLOTS; i += THREADS) {
        let second = SWIGLU && i % FRAGMENT >= FRAGMENT / 2u;
        let n = n0 + select(i, i / FRAGMENT * (FRAGMENT / 2u) + i % (FRAGMENT / 2u), SWIGLU);
        if second {
            slot_bytes[i] = select(0u, byte_of(p.up, found.x, n), is_here(p.up, found.x, n));
        } else {
            slot_bytes[i] = select(0u, byte_of(p.w, found.x, n), is_here(p.w, found.x, n));
        }
    }
    let lane = thread % SUBGROUP;
    let first_slot = thread / SUBGROUP * STRIP; // of this subgroup's
    let region = thread / SUBGROUP * FRAGMENT_SIZE;
    let w_size = arrayLength(&w_words);
    let up_size = arrayLength(&up_words);
    let x_{r} = (half_row + {r}u * FRAGMENT) * p.half_columns / UNIT;
    workgroupBarrier();
    let slot_{e} = first_slot + (lane + {e}u * SUBGROUP) % STRIP;
    let from_{e} = slot_{e} * RAW_PITCH * 4u;
    let row_{e} = slot_bytes[slot_{e}];
    let column_{e} = (lane + {e}u * SUBGROUP) / STRIP % (PART / 16u) * 16u;
    let to_{e} = (slot_{e} * PITCH + column_{e}) / UNIT;
    let w_item_{h} = item_of(lane + {h}u * SUBGROUP);
    let w_row_{h} = slot_bytes[first_slot + raw_slot(w_item_{h}, 0u)];
    let first_w_{h} = w_words[word_of(w_item_{h}, w_row_{h}, 0u, w_size)];
    let up_item_{u} = item_of(lane + {u}u * SUBGROUP);
    let up_row_{u} = slot_bytes[first_slot + raw_slot(up_item_{u}, 1u)];
    let first_up_{u} = up_words[word_of(up_item_{u}, up_row_{u}, 0u, up_size)];
    put_raw(w_item_{h}, first_slot, 0u, first_w_{h});
    put_raw(up_item_{u}, first_slot, 1u, first_up_{u});
    var sum_{r}_{s} = MatrixC();
    subgroupBarrier();
    for (var begin = 0u; begin < p.k; begin += CHUNK) {
        let chunk = select(0u, begin / CHUNK + 1u, begin + CHUNK < p.k);
        let raw_w_{h} = w_words[word_of(w_item_{h}, w_row_{h}, chunk, w_size)];
        let raw_up_{u} = up_words[word_of(up_item_{u}, up_row_{u}, chunk, up_size)];
        let byte_{e} = from_{e} + ((row_{e} + begin / CHUNK * CHUNK_BYTES) & 3u);
        let steps = min(CHUNK, p.k - begin);
        for (var k = 0u; k < steps; k += DEPTH) {
            let x_k = (begin + k) * FRAGMENT / UNIT;
            let a_{r}_{d}_{i} = coopLoadT<MatrixA>(&half[x_{r} + x_k + ({d}u * PART / FRAGMENT + {i}u) * FRAGMENT_SIZE / UNIT], FRAGMENT / UNIT);
            // for each {d}
            {
                let part = k + {d}u * PART;
                let sixteen_{e} = sixteen_at(byte_{e}, part + column_{e});
                put_w(to_{e}, within(sixteen_{e}.first, begin + part + column_{e}), within(sixteen_{e}.second, begin + part + column_{e} + 8u));
                subgroupBarrier();
                let b_{s}_{i} = coopLoad<MatrixB>(&w_tile[((first_slot + {s}u * FRAGMENT) * PITCH + {i}u * FRAGMENT) / UNIT], PITCH / UNIT);
                sum_{r}_{s} = coopMultiplyAdd(a_{r}_{d}_{i}, b_{s}_{i}, sum_{r}_{s});
                subgroupBarrier();
            }
        }
        put_raw(w_item_{h}, first_slot, 0u, raw_w_{h});
        put_raw(up_item_{u}, first_slot, 1u, raw_up_{u});
        subgroupBarrier();
    }
    let pitch = FRAGMENT;
    if {r}u * FRAGMENT < found.z { coopStoreT(sum_{r}_{s}, &products[region], pitch); subgroupBarrier(); finish_fragment(found, n0, {r}u * FRAGMENT, first_slot + {s}u * FRAGMENT, region, lane); subgroupBarrier(); }
}
