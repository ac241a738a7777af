// The product of few rows, where decoding weights is nearly all there is to do: each subgroup decodes a weight row, eight
// columns of k a thread at a time and neighbours side by side, multiplies it with ROWS rows of the input and adds up the
// threads' sums. f32 operands and sums, no shared tile, no barrier in a loop.
//
// The subgroups of a workgroup have its columns dealt out by their places (subgroup.wgsl): column c belongs to who has place
// c * STRIDE. So a product does not depend on which subgroup makes it. Lines with {r} are repeated for each of ROWS (shader.rs).

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>; // rows begin at multiples of four

const THREADS = 128u;
const STRIDE = THREADS / BLOCK_COLUMNS;

// Columns k .. k + 8 of a row, zeros beyond the last, which is a multiple of four: what lies there may be no number.
fn x_at(begin: u32, k: u32) -> Eight {
    let second = x[(begin + k) / 4u + 1u];
    return Eight(x[(begin + k) / 4u], select(vec4(0.0), second, k + 4u < p.k));
}

fn w_at(row: u32, k: u32) -> Eight {
    var eight = weights_at(row, k);
    if k + 8u > p.k {
        eight.b = vec4(0.0);
    }
    return eight;
}

fn product_of(a: Eight, b: Eight) -> f32 {
    return dot(a.a, b.a) + dot(a.b, b.b);
}

// The first element of tile row r, of the first row where there is none.
fn row_of(r: u32, rows: u32) -> u32 {
    let row = input_rows[select(0u, r, r < rows)];
    return at(p.x, select(row, 0u, row == 0xffffffffu), 0u);
}

fn store(row: u32, n: u32, product: f32, up: f32) {
    if SWIGLU {
        out[at(p.out, row, 0u) + n] = silu(product) * up;
    } else {
        finish(row, n, product);
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
    find_rows(found, thread, THREADS);
    let place = take_place(thread);
    let n0 = (p.first_block + number % p.column_blocks) * BLOCK_COLUMNS;
    for (var c = (place.first + STRIDE - 1u) / STRIDE; c * STRIDE < place.first + place.size; c++) {
        let n = n0 + c;
        if !is_here(p.w, found.x, n) {
            continue;
        }
        let row = byte_of(p.w, found.x, n);
        let up_row = byte_of(p.up, found.x, n);
        for (var r = 0u; r < found.z; r += ROWS) {
            let begin_{r} = row_of(r + {r}u, found.z);
            var sum_{r} = 0.0;
            var up_sum_{r} = 0.0;
            // As often for every thread of a subgroup.
            for (var first = 0u; first < p.k; first += 8u * place.size) {
                let k = first + 8u * place.lane;
                if k < p.k {
                    of_up = false;
                    let w = w_at(row, k);
                    of_up = true;
                    var up = w;
                    if SWIGLU {
                        up = w_at(up_row, k);
                    }
                    if r + {r}u < found.z { let a = x_at(begin_{r}, k); sum_{r} += product_of(a, w); up_sum_{r} += product_of(a, up); }
                }
            }
            let all_{r} = subgroupAdd(vec2(sum_{r}, up_sum_{r}));
            if place.lane == 0u && r + {r}u < found.z { store(found.y + r + {r}u, n, all_{r}.x, all_{r}.y); }
        }
    }
}
