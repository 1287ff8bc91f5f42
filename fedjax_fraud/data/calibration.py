"""What is known about the published PaySim file, as numbers: the targets of the generator in ``synthetic.py``.

Counts are those of the whole file (6,362,620 rows). Fraud figures come from all its 8,213 fraud rows. The curves of
genuine rows are estimates from 86,102 randomly drawn genuine rows. Money is in the file's unnamed currency.
"""

from typing import NamedTuple

LEVELS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


class Flat(NamedTuple):
    """A value that the share ``stop - start`` of the rows takes exactly; one point of the curve if both are equal."""

    start: float
    stop: float
    value: float


class Curve(NamedTuple):
    """A distribution of money: its quantiles at ``LEVELS`` and the values that many rows share."""

    quantiles: tuple[float, ...]
    flats: tuple[Flat, ...] = ()


class Behaviour(NamedTuple):
    """The genuine rows of one type: how many there are, and the curves of amount and balances before."""

    num_rows: int
    amount: Curve
    origin_balance: Curve
    receiver_balance: Curve


# fmt: off
GENUINE = {
    "CASH_IN": Behaviour(
        1399284,
        Curve((1.26, 3204.97, 14282.01, 29629.41, 71960.44, 142847.33, 240145.42, 341507.74, 413882.24, 554160.76,
               730462.61, 922419.3)),
        Curve((0.0, 19.14, 753.1, 7998.78, 36914.0, 1182422.74, 5268164.52, 9855594.53, 15137092.36, 24504577.18,
               29913067.79, 33593209.9), (Flat(0.0, 0.00926, 0.0),)),
        Curve((0.0, 0.0, 0.0, 0.0, 164970.32, 545981.74, 1616746.88, 3879448.33, 6432256.37, 13891475.48,
               37997264.69, 138816249.07), (Flat(0.0, 0.11517, 0.0),)),
    ),
    "CASH_OUT": Behaviour(
        2233384,
        Curve((6.57, 2996.25, 15365.6, 29858.87, 72245.82, 146530.28, 245977.29, 354902.01, 425332.98, 573569.08,
               756911.99, 1514613.49)),
        Curve((0.0, 0.0, 0.0, 0.0, 0.0, 540.5, 31042.5, 107673.16, 220745.32, 569765.65, 983375.23, 7923639.39),
              (Flat(0.0, 0.45965, 0.0),)),
        Curve((0.0, 0.0, 0.0, 0.0, 122228.81, 500770.06, 1532338.65, 3750908.32, 6101960.16, 13399983.27,
               33579579.3, 176441881.43), (Flat(0.0, 0.14247, 0.0),)),
    ),
    "DEBIT": Behaviour(
        41432,
        Curve((4.4, 61.51, 251.87, 589.14, 1421.74, 2919.72, 5544.6, 9688.81, 15389.31, 110600.82, 173259.46,
               202290.92)),
        Curve((0.0, 0.0, 0.0, 0.0, 853.0, 20013.0, 74042.93, 208463.0, 360727.81, 709595.0, 900462.35, 938381.0),
              (Flat(0.0, 0.16697, 0.0),)),
        Curve((0.01, 6756.14, 20330.42, 38994.71, 117674.06, 461082.25, 1392052.12, 3555494.48, 6525615.91,
               16907482.58, 42284924.63, 61718096.66)),
    ),
    "PAYMENT": Behaviour(
        2151495,
        Curve((0.6, 170.81, 850.17, 1726.45, 4360.27, 9474.17, 17611.8, 29094.52, 38325.72, 60426.68, 89330.34,
               151482.05)),
        Curve((0.0, 0.0, 0.0, 0.0, 0.0, 10575.0, 60729.5, 203881.8, 335976.88, 680515.23, 1429433.95, 4703963.13),
              (Flat(0.0, 0.35693, 0.0),)),
        Curve((0.0,) * 12),
    ),
    "TRANSFER": Behaviour(
        528812,
        Curve((196.43, 9903.81, 47738.51, 93270.79, 224740.28, 490402.75, 990509.65, 1802899.2, 2681924.88,
               10000000.0, 18495128.29, 51683728.91), (Flat(0.9891, 0.99561, 10000000.0),)),
        Curve((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 22040.0, 104552.4, 212705.5, 522670.92, 1044031.21, 3976978.79),
              (Flat(0.0, 0.54509, 0.0),)),
        Curve((0.0, 0.0, 0.0, 0.0, 264211.22, 1078583.74, 2886972.67, 6488961.66, 10104510.08, 22691911.22,
               83004175.23, 166741803.87), (Flat(0.0, 0.10987, 0.0),)),
    ),
}

# A fraud empties a victim by TRANSFER, up to the cap, and takes the same amount out by CASH_OUT within the hour.
FRAUD_RATE = 0.00129
FRAUD_CAP = 10_000_000.0
VICTIM_BALANCE = Curve(
    (63.8, 2096.28, 17986.91, 37917.37, 127564.33, 444898.97, 1534985.07, 4577377.85, 8151388.2, 23181883.82,
     47158651.16, 59585040.37), (Flat(0.9646, 0.9646, FRAUD_CAP),))
CASHED_RECEIVER_BALANCE = Curve(
    (0.0, 0.0, 0.0, 0.0, 0.0, 144970.05, 794710.7, 2647650.65, 4812967.72, 12087009.36, 32820076.7, 236230516.82),
    (Flat(0.0, 0.30588, 0.0),))
MULE_UNTOUCHED = 0.99292  # share of fraud TRANSFERs that leave both balances of the receiver at 0
CASHED_NOTHING = 0.00389  # share of fraud CASH_OUTs with amount 0
CASHED_FROM_EMPTY = 0.0051  # share of fraud CASH_OUTs that take money from an origin with balance 0
FLAGGED = 0.0039  # share of fraud TRANSFERs that the simulated bank blocks

# The rhythm of genuine rows: share by step % 24, and by day (step - 1) // 24. Fraud is even over the steps.
LAST_STEP = 743
SHARE_BY_HOUR = (
    0.01127, 0.00429, 0.00131, 0.00019, 0.00014, 0.00019, 0.00039, 0.00132, 0.00396, 0.04305, 0.06736, 0.07092,
    0.07752, 0.0743, 0.06957, 0.06597, 0.06968, 0.06891, 0.09094, 0.10088, 0.0862, 0.03959, 0.02949, 0.02257)
SHARE_BY_DAY = (
    0.08924, 0.07133, 0.00015, 0.0047, 0.00144, 0.07011, 0.06858, 0.0702, 0.06529, 0.06146, 0.06534, 0.05535,
    0.06672, 0.06143, 0.06313, 0.05928, 0.06646, 0.00344, 0.00173, 0.00315, 0.00381, 0.00891, 0.00778, 0.0053,
    0.0097, 0.00208, 0.00132, 0.0024, 0.00836, 0.00179, 0.0)
# fmt: on

# A receiver's new balance is often written later, when more has come in: share of such rows, up to each last step.
LATE_WRITES = {10: 0.71, 24: 0.43, 48: 0.17, 300: 0.06, LAST_STEP: 0.03}

# Origins and merchants are drawn from so many numbers that few repeat; customers who receive do so 7.4 times.
NUM_ACCOUNT_NUMBERS = 2**31
ROWS_PER_CUSTOMER_RECEIVER = 7.36
