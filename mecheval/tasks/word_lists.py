"""Lists of common English words that most tokenizers read as one token each."""

NAMES = """
Adam Alan Albert Alex Alice Amy Andrew Angela Anna Anne Anthony Arthur Barbara Ben Betty Bill Bob
Brian Bruce Carl Carol Catherine Charles Chris Christine Daniel David Dennis Diana Donald Dorothy
Douglas Edward Elizabeth Ellen Emily Emma Eric Eva Evelyn Frances Francis Frank Fred George Grace
Graham Grant Greg Hannah Harold Harry Helen Henry Howard Hugh Ian Isaac Jack Jacob James Jane Jason
Jean Jeff Jennifer Jerry Jim Joan Joe John Jonathan Joseph Joshua Julia Karen Karl Kate Keith Kelly
Ken Kevin Kim Laura Lawrence Lee Leo Leonard Lewis Linda Lisa Louis Lucy Luke Margaret Maria Mark
Martha Martin Mary Matthew Max Michael Mike Nancy Nathan Neil Nicholas Nick Oliver Oscar Patricia
Patrick Paul Peter Philip Rachel Ralph Raymond Rebecca Richard Robert Roger Ronald Rose Ross Roy
Ruth Ryan Sam Samuel Sandra Sara Sarah Scott Sean Simon Sophie Stephen Steve Steven Stuart Susan
Taylor Ted Terry Theodore Thomas Tim Timothy Tom Tony Victor Victoria Vincent Walter William
""".split()  # noqa: SIM905

NOUNS = """
actor airport album animal apartment apple arm army artist baby ball band bank bar basket bath beach
bear bed bell bird board boat body bone book bottle bowl box boy branch bread bridge brother brush
building bus butter button camera camp candle car card castle cat chair cheese chicken child church
circle city clock cloud coach coat coffee coin college computer cook corn corner cotton country
court cow cream crown cup dance daughter desert desk dinner doctor dog door dragon dress driver
dust ear earth egg elephant engine eye face factory family farm farmer father feather field finger
fire fish flag floor flower foot forest fruit game garden gate ghost giant girl glass goat gold
grandmother grass guitar gun hair hall hammer hand hat head heart hill hole honey horse hospital
hotel house husband ice iron island jacket job judge juice key king kitchen knee knife ladder lady
lake lamp leaf leather leg lemon letter library lion lip machine magazine map market meat medal
metal milk mirror money monkey moon mother mountain mouse mouth museum music nail neck nest net
newspaper night nose nurse ocean office oil onion orange oven owner page paint palace paper parent
park party path pen pencil phone piano picture pig pilot pipe planet plant plate pocket poet police
pool potato powder prince prison queen rabbit radio rain rat restaurant rice ring river road rock
roof room root rope rose sail salt sand school screen sea seat seed sheep ship shirt shoe shop
silk silver sister skin sky snake snow soap soldier son soup spider spoon spring stage star station
steel stone store storm street student sugar suit sun table tail tea teacher telephone temple
tent theater thread throat tiger tool tooth tower town toy train tree truck uncle valley village
wall watch water wheel wife wind window wine wing winter wire wolf wood wool worker yard
""".split()  # noqa: SIM905

NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred
thousand million billion dozen half third quarter first second fourth fifth sixth seventh eighth
ninth tenth once twice double triple single
""".split()  # noqa: SIM905

WORD_LISTS = {"names": NAMES, "nouns": NOUNS, "numbers": NUMBERS}
