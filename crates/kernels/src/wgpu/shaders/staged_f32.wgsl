// What gemm.wgsl stages in shared memory: the input and the weights as they are.

alias Staged = vec4<f32>;
const DEPTH = 16u;

@group(0) @binding(1) var<storage, read_write> x: array<f32>;

// Four columns of the tile's row that an item belongs to, in the step that begins with column `first`.
fn x_at(item: u32, first: u32) -> Staged {
    if item >= TILE_ROWS * FOURS {
        return vec4(0.0);
    }
    let row = input_rows[item / FOURS];
    let k = first + item % FOURS * 4u;
    if row == 0xffffffffu || k >= p.k {
        return vec4(0.0);
    }
    let begin = at(p.x, row, 0u) + k;
    if k + 4u <= p.k {
        return vec4(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]);
    }
    var four = vec4(0.0);
    for (var j = 0u; k + j < p.k; j++) {
        four[j] = x[begin + j];
    }
    return four;
}

// What the sums of an input row are to be multiplied by.
fn factor_of(row: u32) -> f32 {
    return 1.0;
}
