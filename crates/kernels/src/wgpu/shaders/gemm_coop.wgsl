// The product by cooperative matrices: f16 operands, f32 sums, FRAGMENT x FRAGMENT at a time.
//
// Four subgroups share 32 columns of k at a time. A thread decodes weights and loads rows (already f16, act.wgsl) for the
// next step while the subgroups multiply: each owns STRIPS strips of FRAGMENT columns of the output and all rows. Sums go
// through shared memory to the epilogue, since where a matrix keeps an element is the driver's secret.
//
// Lines with {r}, {s}, {e}, {x} are repeated for each fragment of rows, strip, eight weights, and eight columns of x of a
// thread (shader.rs): WGSL cannot ask for a loop to be unrolled, and sums must not leave the registers.

@group(0) @binding(1) var<storage, read_write> half: array<EightHalves>; // [M, K / 8]
@group(0) @binding(10) var<storage, read_write> exponents: array<i32>;  // [M]: x is half * 2^exponent

struct EightHalves {
    a: vec4<f16>,
    b: vec4<f16>,
}

const SLOTS = 64u;  // weight rows of a workgroup
const DEPTH = 32u;
const PITCH = 40u;  // f16 from row to row of shared memory: 80 bytes, which spreads rows over the banks
const THREADS = 4u * SUBGROUP;
const STRIPS = SLOTS / FRAGMENT / 4u; // of a subgroup

var<workgroup> x_tile: array<f16, TILE_ROWS * PITCH>;
var<workgroup> w_tile: array<f16, SLOTS * PITCH>;
var<workgroup> products: array<f32, TILE_ROWS * SLOTS>;
var<workgroup> powers: array<f32, TILE_ROWS>;

// Columns k .. k + 8 of an input row, zeros beyond its end or where there is no row.
fn x_at(item: u32, k: u32) -> EightHalves {
    if item < TILE_ROWS * 4u {
        let row = input_rows[item / 4u];
        let column = k + item % 4u * 8u;
        if row != 0xffffffffu && column < p.k {
            return half[row * ((p.k + 7u) / 8u) + column / 8u];
        }
    }
    return EightHalves();
}

fn put_x(item: u32, eight: EightHalves) {
    if item < TILE_ROWS * 4u {
        let to = item / 4u * PITCH + item % 4u * 8u;
        x_tile[to] = eight.a.x;
        x_tile[to + 1u] = eight.a.y;
        x_tile[to + 2u] = eight.a.z;
        x_tile[to + 3u] = eight.a.w;
        x_tile[to + 4u] = eight.b.x;
        x_tile[to + 5u] = eight.b.y;
        x_tile[to + 6u] = eight.b.z;
        x_tile[to + 7u] = eight.b.w;
    }
}

// The weight row of a slot: whether it is there, and its first byte.
struct Row {
    here: bool,
    byte: u32,
}

fn row_of(item: u32, expert: u32, n0: u32) -> Row {
    let slot = item / 4u;
    let n = n0 + slot % BLOCK_COLUMNS;
    if SWIGLU && slot >= BLOCK_COLUMNS {
        return Row(is_here(p.up, expert, n), byte_of(p.up, expert, n));
    }
    return Row(is_here(p.w, expert, n), byte_of(p.w, expert, n));
}

fn w_at(item: u32, row: Row, k: u32) -> Eight {
    let column = k + item % 4u * 8u;
    if !row.here || column >= p.k {
        return Eight(vec4(0.0), vec4(0.0));
    }
    of_up = SWIGLU && item / 4u >= BLOCK_COLUMNS;
    var eight = weights_at(row.byte, column);
    if column + 8u > p.k {
        let left = p.k - column;
        eight.a = select(vec4(0.0), eight.a, vec4(left) > vec4(0u, 1u, 2u, 3u));
        eight.b = select(vec4(0.0), eight.b, vec4(left) > vec4(4u, 5u, 6u, 7u));
    }
    return eight;
}

fn put_w(item: u32, eight: Eight) {
    let to = item / 4u * PITCH + item % 4u * 8u;
    let a = vec4<f16>(eight.a);
    let b = vec4<f16>(eight.b);
    w_tile[to] = a.x;
    w_tile[to + 1u] = a.y;
    w_tile[to + 2u] = a.z;
    w_tile[to + 3u] = a.w;
    w_tile[to + 4u] = b.x;
    w_tile[to + 5u] = b.y;
    w_tile[to + 6u] = b.z;
    w_tile[to + 7u] = b.w;
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
    find_rows(found, thread, THREADS);
    let n0 = (p.first_block + number % p.column_blocks) * BLOCK_COLUMNS;
    for (var i = thread; i < TILE_ROWS; i += THREADS) {
        powers[i] = 0.0;
        if input_rows[i] != 0xffffffffu {
            powers[i] = power_of_two(exponents[input_rows[i]]);
        }
    }
    let strip = thread / SUBGROUP * STRIPS * FRAGMENT; // first column of this subgroup's
    var sum_{r}_{s} = MatrixC();
    let row_{e} = row_of(thread + {e}u * THREADS, found.x, n0);
    var next_w_{e} = w_at(thread + {e}u * THREADS, row_{e}, 0u);
    var next_x_{x} = x_at(thread + {x}u * THREADS, 0u);
    for (var k = 0u; k < p.k; k += DEPTH) {
        put_w(thread + {e}u * THREADS, next_w_{e});
        put_x(thread + {x}u * THREADS, next_x_{x});
        workgroupBarrier();
        next_w_{e} = w_at(thread + {e}u * THREADS, row_{e}, k + DEPTH);
        next_x_{x} = x_at(thread + {x}u * THREADS, k + DEPTH);
        for (var d = 0u; d < DEPTH; d += FRAGMENT) {
            let b_{s} = coopLoad<MatrixB>(&w_tile[(strip + {s}u * FRAGMENT) * PITCH + d], PITCH);
            let a_{r} = coopLoadT<MatrixA>(&x_tile[{r}u * FRAGMENT * PITCH + d], PITCH);
            sum_{r}_{s} = coopMultiplyAdd(a_{r}, b_{s}, sum_{r}_{s});
        }
        workgroupBarrier();
    }
    let pitch = SLOTS;
    let to_{r}_{s} = {r}u * FRAGMENT * SLOTS + strip + {s}u * FRAGMENT;
    coopStoreT(sum_{r}_{s}, &products[to_{r}_{s}], pitch);
    workgroupBarrier();
    for (var i = thread; i < found.z * BLOCK_COLUMNS; i += THREADS) {
        let r = i / BLOCK_COLUMNS;
        let c = i % BLOCK_COLUMNS;
        let y = products[r * SLOTS + c] * powers[r];
        if SWIGLU {
            if n0 + c < p.n {
                let up = products[r * SLOTS + BLOCK_COLUMNS + c] * powers[r];
                out[at(p.out, found.y + r, 0u) + n0 + c] = silu(y) * up;
            }
        } else if is_here(p.w, found.x, n0 + c) {
            finish(found.y + r, n0 + c, y);
        }
    }
}
