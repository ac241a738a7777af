// The product by cooperative matrices: f16 operands, f32 sums, FRAGMENT x FRAGMENT at a time.
//
// A workgroup makes TILE_ROWS rows times SLOTS columns, DEPTH columns of k at a time. Bytes of its weight rows come into `raw`
// a CHUNK of columns at a time, word after word, so that neighbours read neighbours; the words of the next chunk wait in
// registers meanwhile. A thread decodes sixteen weights of a step out of `raw` into `w_tile`, then subgroups multiply:
// WARP_ROWS x WARP_COLUMNS of them share the output. docs/wgpu.md has what each of these was seen to be worth.
//
// What costs here is integer arithmetic and waiting: addresses are made once, before the loops, and nothing in a step branches
// or asks whether a row or a column is there. What is not has an address that is, and its sums are not stored. `half` has
// zeros up to a multiple of DEPTH columns (act.wgsl), and so have the decoded weights. What is loaded is bound as writable,
// although nothing writes it: drivers move loads of memory that cannot change down to their use, behind the barriers whose
// time they were to pass.
//
// Sums go through shared memory to the epilogue, since where a matrix keeps an element is the driver's secret. With SWIGLU
// half of each FRAGMENT columns are gate's and half are up's, so that a fragment holds both factors of an output.
//
// The text is repeated as `Tile::unroll` says (shader.rs): WGSL cannot ask for a loop to be unrolled, and sums must not leave
// the registers.

@group(0) @binding(1) var<storage, read_write> half: array<EightHalves>; // [M, columns / 8]
@group(0) @binding(2) var<storage, read_write> w_words: array<u32>;
@group(0) @binding(3) var<storage, read_write> up_words: array<u32>;
@group(0) @binding(10) var<storage, read_write> exponents: array<i32>;  // [M]: x is half * 2^exponent

const PITCH = DEPTH + 8u;              // f16 from row to row of a tile, which spreads rows over the banks
const EIGHTS = DEPTH / 8u;
const WARPS = WARP_ROWS * WARP_COLUMNS; // subgroups
const THREADS = WARPS * SUBGROUP;
const STRIPS = SLOTS / FRAGMENT / WARP_COLUMNS; // of FRAGMENT columns, of a subgroup
const RAW_WORDS = (CHUNK_BYTES + 6u) / 4u; // that a chunk of a row touches, at most
const RAW_PITCH = (RAW_WORDS + 1u) | 1u; // odd: spread over the banks; decoders load one word more
const FRAGMENT_SIZE = FRAGMENT * FRAGMENT;

var<workgroup> x_tile: array<Unit, TILE_ROWS * PITCH / UNIT>;
var<workgroup> w_tile: array<Unit, SLOTS * PITCH / UNIT>;
var<workgroup> raw: array<u32, SLOTS * RAW_PITCH>;
var<workgroup> products: array<f32, PRODUCTS * FRAGMENT_SIZE>; // fragments: REGIONS, and one that nobody reads if there are more
var<workgroup> slot_bytes: array<u32, SLOTS>;  // where weight rows begin: with SWIGLU gate's, then up's
var<workgroup> powers: array<f32, TILE_ROWS>;

fn weight_word(i: u32) -> u32 {
    return raw[i];
}

// Where eight columns of an input row are. Threads without an item of their own repeat another's: nothing branches.
fn x_place(thread: u32) -> u32 {
    let item = thread % (TILE_ROWS * EIGHTS);
    let row = input_rows[item / EIGHTS];
    return select(row, 0u, row == 0xffffffffu) * p.eights + item % EIGHTS;
}

fn put_x(thread: u32, eight: EightHalves) {
    let item = thread % (TILE_ROWS * EIGHTS);
    let to = (item / EIGHTS * PITCH + item % EIGHTS * 8u) / UNIT;
    x_tile[to + {v}u] = eight.a; x_tile[to + {v}u + 1u] = eight.b;
    x_tile[to + {f}u] = eight.a[{f}u];
    x_tile[to + {f}u + 4u] = eight.b[{f}u];
}

// The words of a chunk of BLOCK_COLUMNS weight rows, one after the other, are the items of a copy. Where an item is among the
// `words` of its buffer; the last chunk of the last row may be a part.
fn word_of(item: u32, first_slot: u32, chunk: u32, words: u32) -> u32 {
    let slot = first_slot + min(item / RAW_WORDS, BLOCK_COLUMNS - 1u);
    return min((slot_bytes[slot] + chunk * CHUNK_BYTES) / 4u + item % RAW_WORDS, words - 1u);
}

fn put_raw(item: u32, first_slot: u32, word: u32) {
    if item < BLOCK_COLUMNS * RAW_WORDS {
        raw[(first_slot + item / RAW_WORDS) * RAW_PITCH + item % RAW_WORDS] = word;
    }
}

// Where a slot's weights are in w_tile.
fn w_place(item: u32) -> u32 {
    let slot = item % SLOTS;
    var place = slot;
    if SWIGLU {
        let n = slot % BLOCK_COLUMNS;
        place = n / (FRAGMENT / 2u) * FRAGMENT + n % (FRAGMENT / 2u) + slot / BLOCK_COLUMNS * (FRAGMENT / 2u);
    }
    return (place * PITCH + item / SLOTS * 16u) / UNIT;
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
    if thread == 0u {
        work = look_up(number);
    }
    let found = workgroupUniformLoad(&work);
    if found.z == 0u {
        return;
    }
    prepare(thread, THREADS);
    find_rows(found, thread, THREADS);
    let n0 = (p.first_block + number % p.column_blocks) * BLOCK_COLUMNS;
    for (var i = thread; i < TILE_ROWS; i += THREADS) {
        powers[i] = 0.0;
        if input_rows[i] != 0xffffffffu {
            powers[i] = power_of_two(exponents[input_rows[i]]);
        }
    }
    for (var i = thread; i < SLOTS; i += THREADS) {
        let n = n0 + i % BLOCK_COLUMNS;
        if SWIGLU && i >= BLOCK_COLUMNS {
            slot_bytes[i] = select(0u, byte_of(p.up, found.x, n), is_here(p.up, found.x, n));
        } else {
            slot_bytes[i] = select(0u, byte_of(p.w, found.x, n), is_here(p.w, found.x, n));
        }
    }
    let lane = thread % SUBGROUP;
    let warp = thread / SUBGROUP;
    let strip = warp % WARP_COLUMNS * STRIPS * FRAGMENT; // first column of this subgroup's
    let band = warp / WARP_COLUMNS * FRAGMENT;           // first row; its others lie WARP_ROWS fragments apart
    let w_size = arrayLength(&w_words);
    let up_size = arrayLength(&up_words);
    let x_{x} = x_place(thread + {x}u * THREADS);
    let first_x_{x} = half[x_{x}];
    workgroupBarrier();
    let from_{e} = (thread + {e}u * THREADS) % SLOTS * RAW_PITCH * 4u;
    let row_{e} = slot_bytes[(thread + {e}u * THREADS) % SLOTS];
    let column_{e} = (thread + {e}u * THREADS) / SLOTS * 16u;
    let to_{e} = w_place(thread + {e}u * THREADS);
    let first_w_{h} = w_words[word_of(thread + {h}u * THREADS, 0u, 0u, w_size)];
    let first_up_{u} = up_words[word_of(thread + {u}u * THREADS, BLOCK_COLUMNS, 0u, up_size)];
    put_x(thread + {x}u * THREADS, first_x_{x});
    put_raw(thread + {h}u * THREADS, 0u, first_w_{h});
    put_raw(thread + {u}u * THREADS, BLOCK_COLUMNS, first_up_{u});
    var sum_{r}_{s} = MatrixC();
    workgroupBarrier();
    for (var begin = 0u; begin < p.k; begin += CHUNK) {
        let chunk = select(0u, begin / CHUNK + 1u, begin + CHUNK < p.k);
        let raw_w_{h} = w_words[word_of(thread + {h}u * THREADS, 0u, chunk, w_size)];
        let raw_up_{u} = up_words[word_of(thread + {u}u * THREADS, BLOCK_COLUMNS, chunk, up_size)];
        let byte_{e} = from_{e} + ((row_{e} + begin / CHUNK * CHUNK_BYTES) & 3u);
        let steps = min(CHUNK, p.k - begin);
        for (var k = 0u; k < steps; k += DEPTH) {
            let next_x_{x} = half[x_{x} + (begin + k + DEPTH) / 8u];
            let sixteen_{e} = sixteen_at(byte_{e}, k + column_{e});
            put_w(to_{e}, within(sixteen_{e}.first, begin + k + column_{e}), within(sixteen_{e}.second, begin + k + column_{e} + 8u));
            workgroupBarrier();
            // for each {d}
            {
                let b_{s} = coopLoad<MatrixB>(&w_tile[((strip + {s}u * FRAGMENT) * PITCH + {d}u * FRAGMENT) / UNIT], PITCH / UNIT);
                { let a = coopLoadT<MatrixA>(&x_tile[((band + {r}u * WARP_ROWS * FRAGMENT) * PITCH + {d}u * FRAGMENT) / UNIT], PITCH / UNIT);[[ sum_{r}_{s} = coopMultiplyAdd(a, b_{s}, sum_{r}_{s});]] }
            }
            workgroupBarrier();
            put_x(thread + {x}u * THREADS, next_x_{x});
        }
        put_raw(thread + {h}u * THREADS, 0u, raw_w_{h});
        put_raw(thread + {u}u * THREADS, BLOCK_COLUMNS, raw_up_{u});
        workgroupBarrier();
    }
    // REGIONS subgroups at a time: all store, since matrices want uniform control flow, but only theirs is read.
    let pitch = FRAGMENT;
    for (var turn = 0u; turn < WARPS; turn += REGIONS) {
        let mine = warp >= turn && warp < turn + REGIONS;
        let region = select(REGIONS, warp - turn, mine) * FRAGMENT_SIZE;
        workgroupBarrier(); coopStoreT(sum_{r}_{s}, &products[region], pitch); workgroupBarrier(); if mine { finish_fragment(found, n0, band + {r}u * WARP_ROWS * FRAGMENT, strip + {s}u * FRAGMENT, region, lane); }
    }
}
