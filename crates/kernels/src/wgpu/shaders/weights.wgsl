// The weights of a product that decodes them where they lie: gemm.wgsl, gemm_few.wgsl.

@group(0) @binding(2) var<storage, read> w_words: array<u32>;
@group(0) @binding(3) var<storage, read> up_words: array<u32>;

var<private> of_up: bool; // which of the two a thread reads

fn weight_word(i: u32) -> u32 {
    if SWIGLU && of_up {
        return up_words[i];
    }
    return w_words[i];
}
