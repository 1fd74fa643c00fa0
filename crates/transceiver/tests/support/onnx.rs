//! Small models in ONNX's format (onnx.proto3 of the ONNX project, IR version 8, operators of version 13), written by hand.

/// A message of Protocol Buffers.
#[derive(Debug, Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap());
        self
    }

    fn int(self, field: u64, value: u64) -> Self {
        self.varint(field << 3).varint(value)
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend_from_slice(bytes);
        message
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, inner: &Self) -> Self {
        self.bytes(field, &inner.0)
    }
}

/// `TensorProto.DataType`.
const FLOAT: u64 = 1;

/// A graph from the tensor `x` to the tensor `y`, both of float32.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    message: Message,
}

impl Graph {
    /// `None` is a dimension of any length.
    pub(crate) fn new(takes: &[Option<u64>], gives: &[Option<u64>]) -> Self {
        let message =
            Message::default().text(2, "test").message(11, &value("x", takes)).message(12, &value("y", gives));
        Self { message }
    }

    /// `output` is what the operator makes of the inputs.
    pub(crate) fn node(self, operator: &str, inputs: &[&str], output: &str) -> Self {
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
        let node = node.text(2, output).text(4, operator);
        Self { message: self.message.message(1, &node) }
    }

    /// A tensor that does not change.
    pub(crate) fn constant(self, name: &str, shape: &[u64], numbers: &[f32]) -> Self {
        let tensor = shape.iter().fold(Message::default(), |tensor, length| tensor.int(1, *length));
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let tensor = tensor.int(2, FLOAT).bytes(9, &numbers).text(8, name);
        Self { message: self.message.message(5, &tensor) }
    }

    /// The file.
    pub(crate) fn model(&self) -> Vec<u8> {
        let operators = Message::default().text(1, "").int(2, 13);
        Message::default().int(1, 8).message(7, &self.message).message(8, &operators).0
    }
}

/// A `ValueInfoProto`.
fn value(name: &str, shape: &[Option<u64>]) -> Message {
    let shape = shape.iter().enumerate().fold(Message::default(), |shape, (place, length)| {
        let dimension = match length {
            Some(length) => Message::default().int(1, *length),
            None => Message::default().text(2, &format!("{name}{place}")),
        };
        shape.message(1, &dimension)
    });
    let tensor = Message::default().int(1, FLOAT).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}
