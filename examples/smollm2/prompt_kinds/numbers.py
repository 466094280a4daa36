"""Kinds with numbers, logic and order: arithmetic, word problems, units, dates, sequences, sorting, counting."""

from __future__ import annotations

from examples.smollm2.prompt_kinds.grammar import kinds

KINDS = kinds("""
= arithmetic tail=none follow=chat
[What is|Calculate|Compute|What's|Work out] {sum}?
{sum} =
[How much is|Solve] {sum}[?| step by step.|, and show your work.]
[Add|Subtract|Multiply|Divide] {2-999} [and|by] {2-99}.
Is {10-999} [divisible by {2-12}|a prime number|even or odd|larger than {10-999b}]?
= percentages tail=none follow=chat
What is {2-95}% of {20-4000}?
[A {object}|{a object}] costs {20-900} [euros|dollars] and is reduced by {5-60}%. [What is the new price?|How much do I
    save?]
{2-40} out of {41-200} [students|visitors|customers] [agreed|came back]. [What percentage is that?|Give it as a
    percentage.]
[Convert|Write] {1-9}/{10-20} [as a percentage|as a decimal|in its simplest form].
How much is {a 10-25}% tip on a bill of {12-180} [dollars|euros]?
= word-problem tail=none follow=chat
{name} has {3-60} {s animals} and [buys|sells|gives away] {2-20} [of them|more]. How many [are there|does {name} have]
    [now|in the end]?
{cap a job} works {3-9} hours a day, {3-6} days a week, and earns {11-45} dollars an hour. How much is that [per
    week|per month|per year]?
A {vehicle} goes {20-120} km in {1-6} hours. [What is its average speed?|How far does it go in {7-12} hours?]
{cap name} needs {2-9} {s object} for each of {4-30} guests. [How many is that in all?|If one costs {2-15} euros, what
    is the total?]
{cap name} is {8-40} years old. {name2} is {2-7} years [older|younger]. [How old will both be in {3-20} years?|How old
    is {name2}?]
A box holds {4-24} {s object}. How many boxes are needed for {30-600}?
A recipe for {2-4} people needs {100-500} g of {food}. How much [for|do I need for] {5-12} people?
[Two friends share|{few} people share] a bill of {30-300} euros[, and one pays {5-25} euros more than the others|]. Who
    pays what?
= algebra tail=none follow=chat
Solve for x: {2-12}x [+|-] {1-40} = {10-150}
[Solve the equation|Find x if] x² = {square}[.|, and explain each step.]
[Simplify|Expand|Factor] {2-9}(x + {2-9b}) [+|-] {2-9c}x[.|, please.]
What is the [slope|y-intercept] of y = {2-9}x + {1-20}?
If f(x) = {2-9}x + {1-12}, what is f({2-20})?
= geometry tail=none follow=chat
The sides of a [square|cube] are {2-50} cm. [Area?|Volume?|Diagonal?]
[Sketch|Describe|Explain] [a right angle|a parallel line|symmetry|a radius|congruent triangles|the number pi].
Two angles of a triangle are {20-80} and {20-80b} degrees. What is the third?
Will {a object} fit in a box of {10-90} x {10-90b} x {10-90c} cm?
What is the [area|perimeter|diagonal] of a rectangle with sides {2-40} [cm|m|inches] and {2-40b}?
[How do I calculate|What is the formula for] the [area|volume|circumference|surface] of a
    [circle|sphere|triangle|cylinder|cube|cone]?
A circle has a [radius|diameter] of {2-50} [cm|m]. [Find its area.|What is its circumference?]
[How many [sides|corners|diagonals] does a [pentagon|hexagon|octagon|trapezoid|cube] have?|What angles does a triangle
    with sides {3-9}, {3-9b} and {3-9c} have?]
My garden is {4-40} m by {4-30} m. How much [fence|grass seed|soil] do I need?
= unit-conversion tail=none follow=chat
[Convert|Change] {2-900} [miles to kilometres|pounds to kilograms|inches to centimetres|feet to metres|litres to
    gallons|ounces to grams|hours to minutes|days to hours|Celsius to Fahrenheit].
How many [seconds|minutes] are in {2-60} [hours|days|weeks]?
[How much is|What is] {2-100} degrees [Fahrenheit in Celsius|Celsius in Fahrenheit]?
How many [teaspoons are in {2-9} tablespoons|millilitres are in {2-9} cups|grams are in {2-40} kilograms|bytes are in
    {2-64} megabytes]?
I am {150-200} cm tall. What is that in feet and inches?
= number-systems tail=none follow=chat
[Write|Convert|What is] {5-999} in [binary|Roman numerals|hexadecimal|words|scientific notation].
What [number|decimal number] is {binary}?
[Round|Estimate] {number} to [the nearest hundred|two digits|one decimal place].
[List|Name] the first {few} [prime numbers|square numbers|multiples of {3-19}|powers of two|even numbers after {20-90}].
= dates tail=none follow=chat
How many days are [there between|left from] {month} {1-28} and {month2} {1-28b}?
If today is {weekday}, what day is it in {3-200} days?
[How old is|How old was] someone born in {1930-2005} in {2006-2030}?
What [is|day is] {3-40} [days|weeks] after {month} {1-28}?
A meeting starts at {1-11}:{10-59} and lasts {20-160} minutes. When does it end?
It is {1-11} [am|pm] in {city}. What time is it in {city2}?
[Is|Was] {1890-2100} a leap year?
= sequences tail=none follow=chat
What comes next? {sequence}
[Continue the sequence|Find the next number|Complete the pattern]: {sequence}
{sequence} [Explain the rule.|What's the pattern?|Give the next three numbers.]
= sorting tail=none follow=chat
{numberlist} - [ascending, please|biggest first|which two are closest?|which ones are even?]
Alphabetical order: {name}, {name2}, {name3}, {city}, {country}
[Who comes first in the alphabet|Which word comes last], {animals}, {animals2} or {object}?
[Sort|Order|Arrange] these [words |]alphabetically: {mixed}
[Sort|Order|Put in order] these numbers from [smallest to largest|largest to smallest]: {numberlist}
[What is the largest number in|Find the average of|Add up|What is the median of|Find the duplicates in|Reverse] this
    list[?|:] {numberlist}
Order these by [size|weight|age|price|speed]: {animals}, {animals2}, {object}, {object2}.
Remove the duplicates: {withduplicates}
= counting tail=none follow=chat
Is the number of [words|letters] in "{bare sentence}" [even or odd|more than {5-12}]?
"{bare sentence}" - which is the [longest|shortest|third|last] word?
{mixed} - how many [words|commas|words with an "{letter}"] is that?
How many [words|letters|vowels] are in this sentence? {sentence}
[How many times does the letter|Count how often the letter] {letter} [occur in|appears in] "{sentence}"[?|]
Count the [words with more than five letters|capital letters|nouns] in: {sentence}
[Count|Can you count] from {1-30} to {31-60}[ in steps of {2-7}|].
= logic tail=none follow=chat
{name} is taller than {name2}. {name2} is taller than {name3}. [Who is the shortest?|Is {name} taller than {name3}?]
All {s job} like {food}. {name} is {a job}. [What follows?|Does {name} like {food}?]
{name}, {name2} and {name3} each own a different pet: {a animals}, {a animals2} and {a animals3}. {name} is afraid of
    the {animals}. {name2} has the {animals2}. Who owns what?
[If it rains, the {event} is cancelled. The {event} was not cancelled.|No {s animals} can {verb}. {brand} is {a
    animals}.] What can you conclude?
I have {3-9} [red|blue] and {3-9b} [green|white] {s object} in a dark room. How many must I take to be sure of two of
    the same colour?
[Make up|Give me] a [small |]logic puzzle [about {s job}|about {few} {s animals}|for {audience}].
{name} sits left of {name2}. {name3} sits right of {name2}. Who sits in the middle?
= probability tail=none follow=chat
I flip a coin {2-12} times. [How many heads can I expect?|What are the odds of no heads at all?]
{few} of {20-90} {s object} are broken. I pick one. [How likely is it to be fine?|And if I pick two?]
[Is it more likely to|What is rarer: to] roll a six twice or to draw {a color} card?
What is the probability of [rolling a {2-6} with one die|throwing {few} heads in a row|drawing an ace|rolling a sum of
    {3-11} with two dice]?
A bag has {3-12} red and {3-12b} blue balls. [I take one|I take two]. What is the chance of [red|two blue ones]?
[How many ways are there to|In how many ways can I] [arrange {few} books|choose {2-4} of {5-9} {s object}|seat {few}
    people in a row]?
[Explain|What is] the [mean|median|mode|standard deviation|range] of {numberlist}?
= money-maths tail=none follow=chat
I [put|save|invest] {100-9000} [dollars|euros] at {1-8}% interest for {2-25} years. [How much will I have?|What is the
    compound interest?]
{cap a company} sells {20-400} {s object} for {3-90} dollars each. Costs are {100-900} dollars. What is the profit?
{few} {s object} cost {10-200} dollars. How much is one?
How long does it take to save {1000-9000} dollars with {50-400} dollars a month?
[What is|Convert] {20-5000} euros in dollars if one euro is 1.{10-25} dollars?
Gas costs 1.{30-90} per litre, and my car needs {4-11} litres per 100 km. What does a trip of {100-1400} km cost?
= estimation tail=none follow=chat
If I {verb} for {2-90} minutes a day, how long is that in a year?
[Could|Can] {a animals} [outrun|outlive|outweigh] {a animals2}?
Guess: [the age of|the weight of|the number of parts in] {a object}.
[Roughly how|About how|Estimate how] [many {s object} fit in a {vehicle}|many {s job} are there in {city}|much does {a
    animals} weigh|long does it take to walk from {city} to {city2}|many words are there in a novel].
How [far|long] is it from {city} to {city2} by {vehicle}?
What is [heavier|bigger|faster|older], {a animals} or {a animals2}?
[How much|What] does {a object} [cost|weigh]? [A rough guess is enough.|]
""")
