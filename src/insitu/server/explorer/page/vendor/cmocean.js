// Colour maps of cmocean 4.0.3, made by scripts/colour_tables.py: knots of position and colour.
//
// The MIT License (MIT)
//
// Copyright (c) 2015 Kristen M. Thyng
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.

export const CMOCEAN = {
  thermal: "00042333 0e072c50 1a10326c 2725348f 2d33339b 344234a0 455e3f9a 6083508f 80b15f82 8ac0647b a3e37260 b3f3824d c3fa983f d3fcb13c e9f6d547 ffe8fa5b",
  haline: "002a186c 122e1e98 1a2829a3 231c39a0 2f0f4999 390c5493 4c18668c 6f338488 843e9787 9c4cad80 af5fbe75 bb71c86b cc94d35d d6add85c e2c8de67 ead8e273 fffdef9a",
  solar: "00331418 18511d22 32722625 4f92361e 6eab5216 91c07613 accc941a cfd9be2c ffe1fd4b",
  ice: "00040613 2626254a 3a35346b 4e3e458c 5a3f519d 683e60ab 7b4075b5 8a4786bb 9d559ac2 b76fb5cd cc8ccbd6 e2b5e0e3 ffeafdfd",
  oxy: "00400505 196a060f 257e050e 2a850a0b 328f1808 33504f4f 4e686867 819c9b9a accccccb cbf4f4f3 ccf8fe69 cff4fc62 d5ebf34b d8eaee40 dceae738 ece5cc26 ffddaf19",
  deep: "00fdfecc 17ceecb3 2d9fdda5 4471caa3 585ab7a4 6751a7a3 99407598 b23e5b93 be404e8d c7414583 d73f3869 e8362b4d ff281a2c",
  dense: "00e6f1f1 0fcce4e8 20b1d6e3 3790c2e2 477fb2e3 5775a1e5 607397e4 6b748ae2 7e7773d7 8f7960c7 9e794fb5 b972348f c96a2675 df5a1851 ef491238 ff360e24",
  algae: "00d7f9d0 2c9fd392 4183c379 5b5ab05d 683fa754 791c9a51 88098d4f 9407824c af146a43 c91a5336 e3193c27 ff122414",
  matter: "00feedb0 26f8b880 3ef29868 51ec7e5a 63e46653 74d95053 8ec0365b ad9b2263 ca751a61 df591757 ff2f0f3e",
  turbid: "00e9f6ab 18dcda88 36ceb862 47c6a651 58bd9445 6eaf7f3d 8d96663a ad765138 c45e4333 ff221f1b",
  speed: "00fffdcd 23e7d582 3bd0be4f 53adad23 6988a008 796c9607 9f287c23 b20f6c2b b90b652c c10b5e2d d715492a e4193d24 ff172313",
  amp: "00f1edec 20e2c7bf 66ca775b 8abb4c30 96b53c27 9faf3024 aaa62225 bd921128 d0790e29 dd680f25 ff3c0912",
  tempo: "00fff6f4 2cc0d0b7 4b8fba97 6859a685 802a937f 8e16877c 9611807a a0117677 be1b5a68 db1c4058 ff151d44",
  rain: "00eeedf3 0fe3dddc 2ad5c1a8 30cfbc9c 3cbcb58d 63799f76 7457956f 8f1c836e 990c7b6e 9f06756e a6036f6d af05676c c61a5163 d9243f56 ef252a44 ff221b38",
  phase: "00a8780d 15c46230 2ad74957 3bdf3184 47dc25a9 52d32bc9 5dc53ce1 68b24fef 71a05df4 7c876df3 866e7aeb 8f5584de 9a388cc9 a22891b8 af19959e bd0d9882 c30b9975 c70f9a6b cf219a55 d6389940 e05e9420 e46b9017 ed84890e ffa8780d",
  topo: "00281a2c 143f3869 1c414583 223f528f 33407598 4c51a7a3 545bb8a4 5a67c3a4 5f76cda3 699fdda5 74ceecb3 7ffbfdcb 800d2514 8d193c1c 96214c1e 9927511e 9c305520 a8516333 b26b703c bd897e40 d0bf953f dccead68 f2e6dfb6 fff9fde4",
  balance: "00181c43 1127337a 1c2942a2 202548b0 251952bc 290d5bbe 2b0a60be 2e0b66bd 32136ebc 4a5399ba 5a85b1c0 6bb9cad0 74d3d9dc 7ff1ecec 80f1eceb 91e1c4bb afcd7f65 bcc36143 c7b9452c cfaf3024 d5a52125 df901029 e77b0e29 ee680f25 ff3c0912",
  delta: "00112040 081b2a59 1125367a 16273d8d 1b21469a 221b569d 2b1c68a0 382881a5 423694aa 4944a1ae 4e52aab0 5878bab5 68b3d1c8 77e3ebde 7ffcfae6 80fefccb 91e7d582 9dd0be4f a9adad23 b488a008 bc6c9607 cf287c23 d8106c2a dc0b652c e00b5e2d eb15492a f2193c24 ff172313",
  curl: "00151d44 121c4058 231a5f6b 30117777 34117f7a 3917887d 402c947f 4a54a484 5a8fba97 69bfcfb6 7efbf3f0 80fdf5f3 8eeed2c4 9ee3ab93 a6de967f afd7806e b7cf6c65 c2bf5460 c9b44560 da912760 e37c1c5f ed621557 f353134e ff340d35",
  diff: "00082340 161b4867 2f516e82 4c8d9ca7 5db2bac0 76ebe9ea 7af1eeef 7ff6f1f0 83f4efed 8aeae5df b1a49a7d d66a5d2c e0574f20 ff1c2207",
};
