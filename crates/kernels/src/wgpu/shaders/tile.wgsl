// What every product has in common: its parameters, which rows and weights a workgroup works on, and what it stores.
//
//   p[r, n] = sum over k of x[row(r), k] * w[expert(r), n, k],   then an epilogue
//
// A workgroup makes TILE_ROWS rows of one expert times a block of columns. Compiled for a weight format, TILE_ROWS, and
// SWIGLU (half of a workgroup's columns belong to `w`, half to `up`).

struct Params {
    x: View,
    w: Part,
    up: Part,
    stok: View,
    tiles: View,
    meta_words: View,
    bias: View,
    out: View,
    count: u32,
    m: u32,
    k: u32,
    n: u32,
    parts: u32,         // workgroups that share a tile of the plan; 0: dense
    first_block: u32,   // of columns
    column_blocks: u32,
    epilogue: u32,      // 0 store, 1 add, 2 silu of the scaled product
    scale: f32,
    gather: u32,        // input row: 1 the row's token, 0 the row itself
    has_bias: u32,
    half_columns: u32,  // of an f16 input
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(4) var<storage, read> table_words: array<u32>;
@group(0) @binding(5) var<storage, read_write> stok: array<i32>;
@group(0) @binding(6) var<storage, read_write> tiles: array<u32>;
@group(0) @binding(7) var<storage, read_write> meta_words: array<u32>;
@group(0) @binding(8) var<storage, read_write> bias: array<f32>;
@group(0) @binding(9) var<storage, read_write> out: array<f32>;

fn table_word(i: u32) -> u32 {
    return table_words[i];
}

// Columns of the output that a workgroup makes.
const BLOCK_COLUMNS = select(SLOTS, SLOTS / 2u, SWIGLU);

var<workgroup> work: vec3<u32>;                    // expert, first row of the output, rows (0: nothing to do)
var<workgroup> input_rows: array<u32, TILE_ROWS>;  // all ones where there is none

// Whether weight row n of an expert exists and is in the bound buffer.
fn is_here(part: Part, expert: u32, n: u32) -> bool {
    let number = expert * part.rows + n;
    return n < p.n && number >= part.first && number < part.last;
}

// Whether any row of a block of columns is in the bound buffer.
fn any_here(expert: u32, block: u32) -> bool {
    let number = expert * p.w.rows + block * BLOCK_COLUMNS;
    return number < p.w.last && number + BLOCK_COLUMNS > p.w.first;
}

// What workgroup `number` works on.
fn look_up(number: u32) -> vec3<u32> {
    if number >= p.count {
        return vec3(0u);
    }
    let tile = number / p.column_blocks;
    var found = vec3(0u);
    if p.parts == 0u {
        found = vec3(0u, tile * TILE_ROWS, min(TILE_ROWS, p.m - tile * TILE_ROWS));
    } else if tile / p.parts < meta_words[p.meta_words.first + META_TILES] {
        let words = p.tiles.first + 3u * (tile / p.parts);
        let before = tile % p.parts * TILE_ROWS;
        let rows = tiles[words + 2u];
        if rows > before {
            found = vec3(tiles[words], tiles[words + 1u] + before, min(TILE_ROWS, rows - before));
        }
    }
    return select(vec3(0u), found, any_here(found.x, p.first_block + number % p.column_blocks));
}

// Has one thread look. A kernel loads `work` itself: what a function gives counts as different from thread to thread, and nobody
// may load a matrix behind a return that depends on it.
fn find_work(number: u32, thread: u32) {
    if thread == 0u {
        work = look_up(number);
    }
}

// Fills `input_rows` with the input rows of what was found.
fn find_rows(found: vec3<u32>, thread: u32, threads: u32) {
    for (var r = thread; r < TILE_ROWS; r += threads) {
        var row = 0xffffffffu;
        if r < found.z {
            row = found.y + r;
            if p.gather == 1u {
                row = bitcast<u32>(stok[p.stok.first + row]);
            }
        }
        input_rows[r] = row;
    }
    workgroupBarrier();
}

// Stores the product of output row `row` and column `n`.
fn finish(row: u32, n: u32, product: f32) {
    let to = at(p.out, row, 0u) + n;
    var y = product;
    if p.has_bias == 1u {
        y += bias[p.bias.first + n];
    }
    if p.epilogue == 1u {
        y += out[to];
    } else if p.epilogue == 2u {
        y = silu(y * p.scale);
    }
    out[to] = y;
}
