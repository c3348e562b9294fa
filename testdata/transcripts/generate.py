"""Writes cases.json: sentences in the forms of openai-whisper's normalisers, and error rates of pairs by jiwer."""

import json
import pathlib
import random

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

SENTENCES = """
Hello, World! [music] How are you?
<b>Bold</b> words (in brackets) stay out, [all of them.
Mr. and Mrs. Smith met Dr. Jones at St. Paul's, Sr. and Jr. Esq.
I can't, won't, shan't and don't; ain't it so? Y'all gonna wanna come, gotta go.
He'd been there; she's gone, they'd done it, it's got me. I'd say we'll see they've won, I'm sure, let's go.
Um, uh, hmm: mhm mm, mmm!
The colour of the theatre's grey armour is honoured, organised and analysed at the centre.
twenty one dollars and fifty cents
two dollars and seven cents; $2 and ¢7
twenty-one, thirty first, forty seconds, fifth sixth eighth ninth twelfth thirteenth
one hundred and twenty three thousand four hundred and fifty six
nineteen eighty four, nineteen oh five, two thousand and twenty four
one oh one, double oh seven, triple five double one
three point one four one five nine
minus five degrees and plus ten, negative twenty, positive minus
fifty percent of the people, five per cent of them, ten per person
one and a half million, two and a half, it and a half
$20 million and 3.5 billion dollars, €1,234.56 or £ 99
1960s 274th 32nd 1st of the 2nd; 10 th and 5 s
one ones two twos the sixes, twenties fiftieth
zero point five, oh point oh, o o o
two hundred dollars and fifty cents percent
12:30 p.m. at 192.168.0.1, v2.0 and 1.2.3
naïve café, Ærø, straße, Łódź, þorn, œuvre, İstanbul
“Quoted” – dash — ellipsis… 50° ± 3 ½ ² ﬁne
a million million, three million two thousand and five, hundred thousand
nine hundred ninety nine decillion nine hundred million
123456789012345678901234567890 thousand and one
zeroth hundredth thousandths millions billionth hundreds
twenty one hundred, twelve hundred and five, five hundred twelve
four five six twenty seven, sixty six eleven, eleven eleven
one hundred one hundred, seventy eighty, forty forty two
o'clock 's own ' tis rock 'n' roll
point taken, the point five, point point, and and double
double trouble, triple and two, double double five, triple ten
half past ten and a half and a half past
0 hundred, zero thousand, 0.50 dollars, $0.07 and $0.7
£5 and €6 7 $8, $ 5 dollars ¢5
per cent, percent, 5%, 5 % of % x%
The 3rd, 4 th, 21 st century; 1990 s
twenty twenty vision, thirty thirty one, ten twenty
two and two makes four and hundred and one
five thousandth and twenty fifth, hundred first, two hundred second, five third
the second one, the first ones, one one, 1 1s
3.0 million 3.25 hundred 1.2345 thousandths 2.5 millionth
yes  and   no\tmaybe
don’t use curly apostrophes, it’s fine
ten pounds five euros six pounds and nine pence
abc123def 4x4 2nds 7up
a.b. c. d.5 .5 5. U.S.A.
Privacy, licence and license, tyre; manoeuvre, programme, jewellery, yoghurt
""".strip("\n").split("\n")

WORDS = """zero oh o one two three five seven eight nine ten eleven twelve thirteen nineteen twenty thirty forty ninety hundred thousand
million billion first second third fifth twelfth eighth ones sixes twenties twentieth hundredth thousands millionth minus plus negative
dollars dollar cents cent pounds euro per percent and and and double triple point half a the people 5 12 100 3.5 0.25 7.0 $5 £3.50 ¢4
1,000 2nd 60s 8% mr colour don't it's""".split()


def main():
    draw = random.Random(20)
    random_texts = [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(400)]
    texts = SENTENCES + random_texts
    normalizers = {"none": lambda text: text, "basic": BasicTextNormalizer(), "english": EnglishTextNormalizer()}
    cases = {"texts": [[text, normalizers["basic"](text), normalizers["english"](text)] for text in texts]}
    pairs = []
    for index in range(120):
        reference = SENTENCES[index % len(SENTENCES)]
        words = reference.split()
        for _ in range(draw.randint(0, 4)):
            place = draw.randrange(len(words) + 1)
            words[place : place + draw.randint(0, 2)] = draw.choices(WORDS, k=draw.randint(0, 2))
        pairs.append([" ".join(words), reference])
    cases["pairs"] = pairs
    cases["rates"] = {}
    for name, normalize in normalizers.items():
        hypotheses, references = ([normalize(pair[side]) for pair in pairs] for side in (0, 1))
        rate = lambda function: 100 * function(references, hypotheses)
        single = lambda function: [100 * function(r, h) for r, h in zip(references, hypotheses)]
        cases["rates"][name] = {
            "wer": rate(jiwer.wer), "cer": rate(jiwer.cer), "wers": single(jiwer.wer), "cers": single(jiwer.cer)
        }
    path = pathlib.Path(__file__).with_name("cases.json")
    path.write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")


main()
