"""The questions of the boxes, by chapter. Keys of answers are made with `python -m flashkit.predict ID ANSWER`."""

from __future__ import annotations

from flashkit.predict.question import Question

_ALL = (
    Question(
        "01.one-matrix",
        "N = 16,384, fp16: how large is one N × N matrix of scores, for one head?",
        "6383d702266c",
        "16,384² × 2 bytes = 2²⁹ bytes.",
        {
            "b96d9e68d12b": "That is 4 bytes an element; fp16 has 2.",
            "b8beee657488": "Those are MB, millions of bytes; a MiB is 2²⁰ bytes.",
            "436ac84f29a6": "That is 1 byte an element; fp16 has 2.",
            "a46b1916cc7e": "Those are bytes.",
            "6713e24b50ee": "That is in GiB.",
            "55305a8971b1": "That is fp32, and in GiB.",
        },
        unit="MiB",
    ),
    Question(
        "01.round-trips",
        "The same N and dtype: how much do S and P move between HBM and the chip in naive attention, one head?",
        "0bac5445d246",
        "S is written and read, P is written and read: four passes of 512 MiB.",
        {
            "2c2dc74e7160": "That is 4 bytes an element; fp16 has 2.",
            "66ad5a8f22e1": "You counted two passes. Each of S and P is written and read again.",
            "4a3b68380d5f": "One of the four passes is missing: is P read, too?",
            "a0615a1295d9": "That is one pass over one of them.",
            "c215e271ea45": "Those are GB, 10⁹ bytes; a GiB is 2³⁰.",
            "f115aa9bb4f8": "That is in MiB.",
        },
        unit="GiB",
    ),
    Question(
        "01.doubled",
        "N doubles. By what factor does the traffic of S and P grow?",
        "d73cde7e573e",
        "Both sides of the matrix double.",
        {
            "c73b4f8e02ac": "Only one side of the matrix doubled in that count.",
            "02bdf373723b": "S and P have N × N elements, not N × N × N.",
        },
    ),
    Question(
        "01.balance",
        "A GPU does 803 TFLOP/s of matrix products and copies 4.30 TB/s. How many FLOP can it do per byte moved?",
        "1e3949c4ac8a",
        "803 / 4.30: a kernel that does fewer FLOP per byte waits for memory.",
        {
            "3063f238d97c": "That is the inverse: TB over TFLOP.",
            "253ae0f2b02d": "The 4.30 TB/s already count a byte read and a byte written.",
            "59ed4233dfcd": "Divide, do not multiply: the seconds must cancel.",
        },
        unit="FLOP per byte",
    ),
    Question(
        "02.two-blocks",
        "Block A holds score 0 with value 10; block B holds score ln 3 with value 2. What is the output O?",
        "2ca7f82da791",
        "The weights are 1 and 3: (1 · 10 + 3 · 2) / 4.",
        {
            "247dcfd6cb4d": "That is the average of the two blocks' outputs. Block B has three times the weight.",
            "2b449f0d7633": "The weights are the other way round: the larger score weighs more.",
            "b484713da1ba": "That is the numerator; divide by the sum of the weights.",
            "9a734a2438e7": "That is the sum of the values.",
        },
    ),
    Question(
        "02.alpha",
        "The running maximum grows from 2 to 3. What is alpha?",
        "a22baa24517e",
        "exp(2 − 3): the old sums shrink.",
        {
            "7e64034c15ae": "That is the inverse: the old sums must shrink, not grow.",
            "07d55866ad89": "That is 2⁻¹; the base here is e.",
            "ad0117ed937f": "Alpha is 1 only when the maximum stays.",
            "651404bfd92e": "That is the exponent; alpha is its exponential.",
        },
    ),
    Question(
        "02.sum",
        "Scores [1, 2], then [3, 0]. What is l after the second block?",
        "c2d3f94e61eb",
        "e⁻² + e⁻¹ + 1 + e⁻³, all against the maximum 3.",
        {
            "d8dae9f5d747": "The old l was not rescaled when the maximum grew.",
            "acd62d000816": "No maximum was subtracted; with scores near 90 that overflows in fp32.",
            "3eff68ede502": "That is the second block alone; the first one counts too.",
        },
    ),
    Question(
        "02.output",
        "The same scores with values [2, 8], then [4, 10]. What is the output O?",
        "fd85dc8cde60",
        "acc / l = 7.7116 / 1.5530.",
        {
            "393f29fd7519": "That is the plain average of the values.",
            "547f4764836b": "That is acc; it still has to be divided by l.",
            "16ef99605a6f": "acc was not rescaled when the maximum grew.",
            "02950cd04f86": "l was not rescaled when the maximum grew.",
        },
    ),
    Question(
        "03.tail",
        "5 tokens, tiles of 4. How many real keys does row 4's second tile hold?",
        "d7349a076534",
        "Only key 4; the other three columns are padding and must be masked.",
        {
            "89060b25d612": "The tile has 4 columns, but there are only 5 keys in all.",
            "8df107a55bf0": "Row 4 may see key 4, also when causal.",
            "98186bd3e14d": "That is all keys; the first tile holds 4 of them.",
        },
    ),
    Question(
        "03.visits",
        "Causal, N = 4,096, query tiles of 128, key tiles of 64. How many score tiles must be computed?",
        "f26783648828",
        "Query tile i visits 2(i + 1) key tiles; the sum over 32 of them.",
        {
            "e373b01bcce5": "That is all tiles; those past the diagonal are skipped.",
            "a862bcb9fbc5": "Half would be exact without the diagonal, whose tiles are needed whole.",
            "a91057d2849e": "You counted one key tile per query tile; they are half as wide.",
            "faaa4fcd90d7": "Those past the last visible key are not needed.",
        },
        digits=4,
    ),
    Question(
        "03.kv-bytes",
        "N = 16,384, d = 64, fp16, query tiles of 128: how much of K and V does FlashAttention 2 read, one head?",
        "458361f8b3cc",
        "128 query tiles read 2 + 2 MiB each.",
        {
            "52dbd055c0ae": "K and V are read once for every query tile, not once.",
            "8cfc9678604d": "That is K alone; V is read as often.",
            "9b2e78d38f47": "That is 4 bytes an element; fp16 has 2.",
            "44dc243b50f9": "That is K, once.",
            "04cbf38ccb6b": "Those are MB; a MiB is 2²⁰ bytes.",
        },
        unit="MiB",
    ),
    Question(
        "03.gqa",
        "8 query heads share 2 K/V heads. Which K/V head does query head 5 read (counted from 0)?",
        "eb4cca749925",
        "5 // (8 / 2).",
        {
            "ab16f8a6e19c": "There are only K/V heads 0 and 1.",
            "cdb4d790efbc": "There are only K/V heads 0 and 1: divide by the group's size, 4.",
            "c2bebad9876d": "Heads 0 to 3 are the first group.",
        },
    ),
    Question(
        "03.mask-order",
        "The maximum is taken before the mask, and a hidden key scores 1,000 more than the others. What of the row?",
        "0be655e4c850",
        "exp(s − m) is 0 for every visible key, so l is 0.",
        {
            "41ebfbc90001": "A maximum that is too large is safe for overflow only: all weights may underflow to 0.",
            "115188cec5ee": "Subtracting a larger maximum makes weights smaller, not larger.",
        },
        choices=("nothing: any maximum is safe", "its weights overflow", "its weights underflow and it becomes 0 / 0"),
    ),
    Question(
        "04.row-sum",
        "What does a row of dS sum to?",
        "5e22019420e7",
        "Adding a constant to all scores of a row changes no weight, so that direction has no gradient.",
        {
            "6f38b6af6b1a": "That is a row of P.",
        },
    ),
    Question(
        "04.D",
        "q = 1, k = [0, ln 3], v = [2, 6], dO = 2: P = [1/4, 3/4] and O = 5. What is D?",
        "fe36c5c55a79",
        "dO · O, which equals Σ P · dP = 1 + 9.",
        {
            "b0dc40a8300b": "That is the sum of dP; each is weighted with its P.",
            "1845f85f721a": "That is O; it is multiplied with dO.",
            "8ba3b6971599": "Multiply dO and O, do not divide.",
        },
    ),
    Question(
        "04.dS",
        "The same query: what is dS for the first key?",
        "c4be0fbd2e90",
        "P (dP − D) = 1/4 (4 − 10).",
        {
            "70f5c0ff965d": "The sign is turned: dP − D, not D − dP. Or is it the second key's?",
            "081d04c78d25": "D is missing: that is P · dP.",
            "9663b4d8789e": "That is dP − D; it is multiplied with P.",
            "dc22a75bf08d": "D is subtracted, not added.",
            "b32779a3fedc": "dP is dO · v: with the dO of 2.",
        },
    ),
    Question(
        "04.products",
        "A backward in two kernels, without atomics, recomputes P. How many matrix products are there in all?",
        "5fe605451394",
        "4 for dK and dV (S, dP, dV, dK), 3 for dQ (S, dP, dQ).",
        {
            "50d05b5081d1": "That is one kernel; the second has to recompute S and dP.",
            "d927666cfdf4": "That is with P kept in memory, in one kernel.",
            "358d2483da74": "Both S and dP are computed again in the second kernel.",
        },
    ),
    Question(
        "07.serial",
        "A copy takes 2 µs, a product 5 µs, there are 4 blocks and one buffer. How long does it all take?",
        "9832656ed9b5",
        "Nothing runs beside anything: 4 · (2 + 5).",
        {
            "7ccb4eed7c29": "That is with two buffers.",
            "6fd0f879b9ab": "Those are the products alone; each must wait for its copy.",
            "266924ee2249": "That is one block.",
        },
        unit="µs",
    ),
    Question(
        "07.double",
        "The same 4 blocks with two buffers. How long now?",
        "63303a681fc3",
        "One copy to fill the pipeline, then the products back to back: 2 + 4 · 5.",
        {
            "2dea6f6a7e8e": "That is one buffer: now copies run under products.",
            "285747351ae5": "The first copy has no product to hide under.",
            "30140ed56e43": "Two buffers do not halve the products: there is one tensor core.",
            "4d7a6960076a": "The products take longer than the copies, so they set the pace.",
        },
        unit="µs",
    ),
    Question(
        "07.phase",
        "A barrier is new. A role waits for phase 1 of it. What happens?",
        "304cd137b82f",
        "wait looks at the phase before the current one, and before phase 0 comes 1.",
        {
            "08cbeb09b283": "That is wait 0: phase 0 is the one that is not over.",
            "334ba09d6015": "Parities repeat: the phase before phase 0 counts as 1.",
        },
        choices=("it passes at once", "it waits for the first arrival", "it never passes"),
    ),
    Question(
        "07.registers",
        "Three warpgroups start with 168 registers a thread. The producer keeps 24. How many can each consumer have?",
        "c5c170daffb1",
        "(3 · 168 − 24) / 2.",
        {
            "7a9f25b3731d": "What the producer gives back, they can take.",
            "3cfe36d41fb0": "The producer keeps 24 of the 504.",
            "325f2b3f3737": "In that count one consumer takes it all; and a thread has at most 255.",
        },
    ),
    Question(
        "07.cap",
        "Exponentials take half as many cycles as the products (d = 128), in turn. How long is the tensor core at work?",
        "28af98f72319",
        "1 / (1 + 1/2).",
        {
            "44c3628e44f8": "That is d = 64, where they take as long.",
            "64014cda833e": "That is d = 256, where they take a quarter.",
            "c78baee11f41": "That is the exponentials' share.",
            "41f30f45c5a3": "1 − 1/4? Add the softmax to the time, do not subtract it.",
        },
        unit="%",
        digits=2,
    ),
)

QUESTIONS = {question.id: question for question in _ALL}
